package pulls

import (
	"sync"

	"berth/reconciler"
	"berth/reconciler/decide"
)

// Applies are commands to apply a commit: the estate task carries them out. They
// are lost with the process; the next one reads a command without an answer again.
type Applies struct {
	*env

	mu      sync.Mutex
	waiting map[commandID]Applying
	done    map[commandID]outcome
}

// Applying is one of these commands, and the digest of the plan that was posted.
type Applying struct {
	id     commandID
	Apply  decide.Apply
	Digest string
}

func newApplies(e *env) *Applies {
	return &Applies{env: e, waiting: map[commandID]Applying{}, done: map[commandID]outcome{}}
}

// NextApply is the oldest command that waits; false: none waits.
func (a *Applies) NextApply() (Applying, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first Applying
	for id, one := range a.waiting {
		if first.id.id == 0 || id.id < first.id.id {
			first = one
		}
	}
	return first, len(a.waiting) > 0
}

// AnswerApply records that the estate task carried out a command or, with a reason,
// refused it. more are further sentences for the user.
func (a *Applies) AnswerApply(one Applying, reason string, more ...string) {
	out := refused(reason)
	if reason == "" {
		out = done("applied")
		out.record, out.answer.Why = true, joinSome(more)
	}
	a.mu.Lock()
	if len(a.done) > maxTried {
		clear(a.done)
	}
	delete(a.waiting, one.id)
	a.done[one.id] = out
	a.mu.Unlock()
	a.Queue.Add(reconciler.Item{Task: reconciler.TaskCommands})
	a.Queue.Add(reconciler.Item{Task: reconciler.TaskEstate}) // others may wait
}

// ApplyInput is the input of the decision about such a command.
func (a *Applies) ApplyInput(st *reconciler.State) decide.Input { return a.applyInput(st) }

// add has the estate task carry out a command.
func (a *Applies) add(one Applying) {
	a.mu.Lock()
	a.waiting[one.id] = one
	a.mu.Unlock()
	a.Queue.Add(reconciler.Item{Task: reconciler.TaskEstate})
}

// result is the outcome of a command, if it is known; waits is true while the
// estate task has it. The outcome stays until drop, as posting the answer may fail.
func (a *Applies) result(id commandID) (out outcome, waits, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, waits = a.waiting[id]
	out, known = a.done[id]
	return out, waits, known
}

// drop forgets a command and its outcome.
func (a *Applies) drop(id commandID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
	delete(a.done, id)
}
