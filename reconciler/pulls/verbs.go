package pulls

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/plan"
)

// access is the access at the forge that a command requires of its user.
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

// commandTable lists the commands. The parser, the help, the check of access and the
// dispatch follow it: a new command is a row of newTable, and a handler.
type commandTable struct {
	*env
	verbs []verb
}

func newTable(c *commands) *commandTable {
	commit := []command.Argument{{Name: "COMMIT", Parse: command.Commit}}
	explain := []command.Argument{{Name: "INSTANCE", Parse: command.Instance}, {Name: "FIELD", Parse: command.Field, Optional: true}}
	t := &commandTable{env: c.env}
	t.verbs = []verb{
		{command.Verb{Name: "plan", Help: "plans again and shows the result"}, writersOrAuthor, "", c.plan},
		{command.Verb{Name: "apply", Args: commit, BreakGlass: true,
			Help: "brings the held changes of COMMIT of main into force: unauthorized ones, stale plans and blocked deletions"},
			writers, "permission for the change", c.apply},
		{ackDelete(), writers, "deletions.acknowledge", c.acknowledgeDeletion},
		{command.Verb{Name: "retry", Help: "after a merge: retries the instances that failed"}, writers, "permission for the change",
			c.retry},
		{command.Verb{Name: "explain", Args: explain, Help: "shows each value and the line that made it; INSTANCE is TENANT.PROJECT/NAME"},
			readers, "", c.explain},
		{command.Verb{Name: command.Help, Help: "shows this table"}, readers, "", t.help},
	}
	return t
}

// parse reads a line by the table.
func (t *commandTable) parse(line string) (command.Command, error) {
	var forms []command.Verb
	for _, v := range t.verbs {
		forms = append(forms, v.Verb)
	}
	return command.Parse(line, forms)
}

// carryOut carries out a command.
func (t *commandTable) carryOut(
	ctx context.Context, pr reconciler.PullRequest, c reconciler.CommandComment, may reconciler.Permission,
) (out outcome, err error) {
	cmd, wrong := t.parse(c.Line)
	switch {
	case may == reconciler.NoPermission:
		out = outcome{reaction: reconciler.Refused} // strangers get no text
	case c.Edited:
		out = confused("edited commands are not read; write a new comment")
	case wrong != nil:
		out = confused(wrong.Error())
	default:
		if out, err = t.dispatch(ctx, &request{Command: cmd, pull: pr, comment: c, may: may}); err != nil || out.wait {
			return out, err
		}
	}
	if out.answer != nil {
		out.answer.To, out.answer.Said = c.Author, c.Line
	}
	t.Log.Info("command answered", "pull", pr.Number, "user", c.Author, "command", cmd.Verb, "reaction", string(out.reaction))
	return out, nil
}

// dispatch carries out a command, if the user has access to it.
func (t *commandTable) dispatch(ctx context.Context, r *request) (outcome, error) {
	i := slices.IndexFunc(t.verbs, func(v verb) bool { return v.Name == r.Verb })
	if i < 0 {
		return outcome{}, fmt.Errorf("no handler for the command %q", r.Verb)
	}
	if v := t.verbs[i]; !v.access.allows(r) {
		return refused(fmt.Sprintf("only %s may give this command", v.access)), nil
	}
	if r.state = t.state(); r.state == nil {
		return outcome{wait: true}, nil
	}
	return t.verbs[i].run(ctx, r)
}

// help answers with the table.
func (t *commandTable) help(context.Context, *request) (outcome, error) {
	out := outcome{reaction: reconciler.Understood, answer: &plan.Answer{Kind: plan.AnswerHelp}}
	for _, v := range t.verbs {
		who := string(v.access)
		if v.needs != "" {
			who += " and " + v.needs
		}
		out.answer.Commands = append(out.answer.Commands, plan.CommandHelp{Usage: v.Usage(), Who: who, Help: v.Help})
	}
	return out, nil
}
