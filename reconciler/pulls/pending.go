package pulls

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"berth/reconciler"
)

// maxDone bounds the results that are remembered. The command of a forgotten one is
// carried out again.
const maxDone = 10_000

// commandID identifies a command: the pull request, and the id of the comment.
type commandID struct {
	pull int
	id   int64
}

func idOf(c reconciler.CommandComment) commandID { return commandID{c.Pull, c.ID} }

// pending are commands that the estate task carries out, and their results. They are
// lost with the process; the next one reads a command without an answer again.
type pending[C, R any] struct {
	mu      sync.Mutex
	waiting map[commandID]C
	results map[commandID]R
}

func newPending[C, R any]() pending[C, R] {
	return pending[C, R]{waiting: map[commandID]C{}, results: map[commandID]R{}}
}

// add adds a command; false if it has a result already.
func (p *pending[C, R]) add(id commandID, c C) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, done := p.results[id]; done {
		return false
	}
	p.waiting[id] = c
	return true
}

// all lists the commands that wait, oldest first.
func (p *pending[C, R]) all() []C {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []C
	for _, id := range slices.SortedFunc(maps.Keys(p.waiting), func(a, b commandID) int { return cmp.Compare(a.id, b.id) }) {
		out = append(out, p.waiting[id])
	}
	return out
}

// finish records the result of a command.
func (p *pending[C, R]) finish(id commandID, result R) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.results) > maxDone {
		clear(p.results)
	}
	delete(p.waiting, id)
	p.results[id] = result
}

// result is the result of a command, if it is known; waits is true while the estate
// task has the command. The result stays until drop, as posting the answer may fail.
func (p *pending[C, R]) result(id commandID) (result R, waits, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, waits = p.waiting[id]
	result, known = p.results[id]
	return result, waits, known
}

// drop forgets a command and its result.
func (p *pending[C, R]) drop(id commandID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
	delete(p.results, id)
}
