"""What users define: tools, agents, policies, sequences, the app."""
