"""placeholder"""
MUTATIONS = {}
