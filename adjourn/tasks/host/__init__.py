"""What a process holds while it works: services, leases, the asyncio loop, its build."""
