package pulls

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/plan"
	"berth/schema/policy"
)

// access is what a user needs at the forge to give a command.
type access string

const (
	readers         access = "users with read access"
	writersOrAuthor access = "users with write access, and the author"
	writers         access = "users with write access"
)

// allows reports whether a user may give a command on a pull request.
func (a access) allows(r *request) bool {
	switch {
	case r.may >= reconciler.CanWrite:
		return true
	case a == writersOrAuthor:
		return strings.EqualFold(r.comment.Author, r.pull.Author)
	}
	return a == readers
}

// verb is one row of the table of commands: form, help, access and handler.
type verb struct {
	command.Verb
	access access
	needs  string // permission that the handler checks, for the help; "": none
	run    func(context.Context, *request) (outcome, error)
}

// request is a command to carry out.
type request struct {
	command.Command
	state   *reconciler.State
	pull    reconciler.PullRequest
	comment reconciler.CommandComment
	may     reconciler.Permission
}

func (r *request) id() commandID { return idOf(r.comment) }

// outcome is the result of a command.
type outcome struct {
	reaction    reconciler.Reaction
	answer      *plan.Answer        // nil: only the reaction is set
	explanation *policy.Explanation // for the answer
	wait        bool                // no result yet: the command is read again
	record      bool                // its records have to be on the remote before the answer
	answered    func()              // called once the answer is posted; may be nil
}

func refused(why string) outcome {
	return outcome{reaction: reconciler.Refused, answer: &plan.Answer{Kind: plan.AnswerRefused, Why: why}}
}

// confused refuses what is not a command.
func confused(why string) outcome {
	out := refused(why)
	out.reaction = reconciler.Confused
	return out
}

// nothingToDo is the outcome of a command that leaves nothing to do.
func nothingToDo(why string) outcome {
	return outcome{reaction: reconciler.Understood, answer: &plan.Answer{Kind: plan.AnswerDone, Did: "nothing to do", Why: why}}
}

// done is the outcome of a command that was carried out.
func done(what string) outcome {
	return outcome{reaction: reconciler.Accepted, answer: &plan.Answer{Kind: plan.AnswerDone, Did: what}}
}

// table lists the commands. The parser, the help, the check of access and the
// dispatch follow it: a new command is a row here, and a handler.
func (h *CommandHandler) table() []verb {
	commit := []command.Argument{{Name: "COMMIT", Parse: command.Commit}}
	explain := []command.Argument{{Name: "INSTANCE", Parse: command.Instance}, {Name: "FIELD", Parse: command.Field, Optional: true}}
	return []verb{
		{command.Verb{Name: "plan", Help: "plans again and shows the result"}, writersOrAuthor, "", h.plan},
		{command.Verb{Name: "apply", Args: commit, BreakGlass: true, Help: "brings into force what COMMIT of main changed and what is held as unauthorized, stale plan or blocked deletion"},
			writers, "permission for the change", h.apply},
		{ackDeleteVerb(), writers, "deletions.acknowledge", h.acknowledgeDeletion},
		{command.Verb{Name: "retry", Help: "after a merge: retries the instances that failed"}, writers, "permission for the change", h.retry},
		{command.Verb{Name: "explain", Args: explain, Help: "shows each value and the line that made it; INSTANCE is TENANT.PROJECT/NAME"}, readers, "", h.explain},
		{command.Verb{Name: command.Help, Help: "shows this table"}, readers, "", h.help},
	}
}

// ackDeleteVerb is how acknowledgements are written, also for reading comments.
func ackDeleteVerb() command.Verb {
	return command.Verb{Name: ackDelete, Args: []command.Argument{{Name: "DIGEST", Parse: command.Digest}},
		Help: "acknowledges exactly this blocked deletion, before or after the merge"}
}

// parse reads a line by the table.
func (h *CommandHandler) parse(line string) (command.Command, error) {
	var forms []command.Verb
	for _, v := range h.verbs {
		forms = append(forms, v.Verb)
	}
	return command.Parse(line, forms)
}

// dispatch carries out a command, if the user has access to it.
func (h *CommandHandler) dispatch(ctx context.Context, r *request) (outcome, error) {
	i := slices.IndexFunc(h.verbs, func(v verb) bool { return v.Name == r.Verb })
	if i < 0 {
		return outcome{}, fmt.Errorf("no handler for the command %q", r.Verb)
	}
	if v := h.verbs[i]; !v.access.allows(r) {
		return refused(fmt.Sprintf("only %s may give this command", v.access)), nil
	}
	if r.state = h.state(); r.state == nil {
		return outcome{wait: true}, nil
	}
	return h.verbs[i].run(ctx, r)
}

// help answers with the table.
func (h *CommandHandler) help(context.Context, *request) (outcome, error) {
	out := outcome{reaction: reconciler.Understood, answer: &plan.Answer{Kind: plan.AnswerHelp}}
	for _, v := range h.verbs {
		who := string(v.access)
		if v.needs != "" {
			who += " and " + v.needs
		}
		out.answer.Commands = append(out.answer.Commands, plan.CommandHelp{Usage: v.Usage(), Who: who, Help: v.Help})
	}
	return out, nil
}
