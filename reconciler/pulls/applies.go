package pulls

import (
	"berth/reconciler"
	"berth/reconciler/decide"
)

// Applies are commands to apply a commit: the estate task carries them out.
type Applies struct {
	*env
	pending pending[Applying, outcome]
}

// Applying is one of these commands, and the digest of the plan that was posted.
type Applying struct {
	id     commandID
	Apply  decide.Apply
	Digest string
}

// NextApply is the oldest command that waits; false: none waits.
func (a *Applies) NextApply() (Applying, bool) {
	all := a.pending.all()
	if len(all) == 0 {
		return Applying{}, false
	}
	return all[0], true
}

// AnswerApply records that the estate task carried out a command or, with a reason,
// refused it. more are further sentences for the user.
func (a *Applies) AnswerApply(one Applying, reason string, more ...string) {
	out := refused(reason)
	if reason == "" {
		out = recorded("applied", more)
	}
	a.pending.finish(one.id, out)
	a.Queue.Add(reconciler.Item{Task: reconciler.TaskCommands})
	a.Queue.Add(reconciler.Item{Task: reconciler.TaskEstate}) // others may wait
}

// ApplyInput is the input of the decision about such a command.
func (a *Applies) ApplyInput(st *reconciler.State) decide.Input { return a.applyInput(st) }
