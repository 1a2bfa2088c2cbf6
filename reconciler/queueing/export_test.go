package queueing

// Kept returns the number of units whose observations are kept.
func (s *Service) Kept() int {
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	return len(s.jobs.units)
}
