package plan

// Whole reports whether every member of every instance has a node. It walks the estate.
func (p Placement) Whole() bool {
	for key := range p.All() {
		if len(p.Unplaced(key)) > 0 {
			return false
		}
	}
	return true
}
