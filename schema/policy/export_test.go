package policy

// CheckedTenants is how many checks of a tenant c remembers.
func CheckedTenants(c *CapacityChecker, tenant string) int { return len(c.checked[tenant]) }
