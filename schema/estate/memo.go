package estate

import (
	"sync"
)

// memo keeps results by the fingerprint of their input. Equal input gives the same
// result until the memo has too many, and starts again.
type memo[K comparable, V any] struct {
	mu   sync.Mutex
	kept map[K]V
}

// of returns the result for a key. It keeps at most that many.
func (m *memo[K, V]) of(key K, most int, compute func() (V, error)) (V, error) {
	m.mu.Lock()
	v, ok := m.kept[key]
	m.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return v, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if first, ok := m.kept[key]; ok {
		return first, nil
	}
	if m.kept == nil || len(m.kept) >= most {
		m.kept = map[K]V{}
	}
	m.kept[key] = v
	return v, nil
}
