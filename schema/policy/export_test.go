package policy

// CheckedTenants returns the number of results that c keeps for a tenant.
func CheckedTenants(c *CapacityChecker, tenant string) int { return len(c.checked.get(tenant)) }
