package estate

// PartOf is the part of an estate that a path belongs to.
func PartOf(path string) string { return partOf(path).Name }
