package pulls

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/command"
	"berth/reconciler/plan"
)

func handler() *CommandHandler {
	return New(Options{
		Branch: "main", Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Loop: Loop{Main: func() Main { return Main{State: &reconciler.State{}} }},
	}).CommandHandler
}

func (h *CommandHandler) give(t *testing.T, line string, may reconciler.Permission) outcome {
	t.Helper()
	out, err := h.carryOut(t.Context(), reconciler.PullRequest{Number: 1, Author: "ana"},
		reconciler.CommandComment{ID: 1, Pull: 1, Author: "bob", Line: line}, may)
	require.NoError(t, err)
	return out
}

// A new command is one row of the table with its handler: the parser, the help, the
// check of access and the dispatch follow.
func TestNewCommandIsARowOfTheTable(t *testing.T) {
	t.Parallel()
	h := handler()
	require.Equal(t, reconciler.Confused, h.give(t, "/berth label prod", reconciler.CanWrite).reaction)
	h.verbs = append(h.verbs, verb{
		command.Verb{Name: "label", Args: []command.Argument{{Name: "FIELD", Parse: command.Field}}, Help: "labels the pull request"},
		writers, "",
		func(_ context.Context, r *request) (outcome, error) { return done("labelled " + r.Args[0]), nil },
	})
	require.Equal(t, "labelled prod", h.give(t, "/berth label prod", reconciler.CanWrite).answer.Did)
	require.Equal(t, "only users with write access may give this command", h.give(t, "/berth label prod", reconciler.CanRead).answer.Why)
	require.Equal(t, "usage: /berth label FIELD", h.give(t, "/berth label", reconciler.CanWrite).answer.Why)
	require.Contains(t, h.give(t, "/berth", reconciler.CanRead).answer.Commands,
		plan.CommandHelp{Usage: "/berth label FIELD", Who: "users with write access", Help: "labels the pull request"})
}

func TestUnknownCommandIsAnError(t *testing.T) {
	t.Parallel()
	h := handler()
	out := h.give(t, "/berth destroy", reconciler.CanWrite)
	require.Equal(t, reconciler.Confused, out.reaction)
	require.Equal(t, "unknown command; /berth help lists the commands", out.answer.Why)
	_, err := h.dispatch(t.Context(), &request{Command: command.Command{Verb: "destroy"}})
	require.ErrorContains(t, err, "no handler", "nothing is carried out instead")
}

func TestReadmeListsEachCommand(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	for _, v := range handler().verbs {
		v.BreakGlass = false // documented elsewhere
		require.Contains(t, string(readme), "| `"+v.Usage()+"` |")
	}
}
