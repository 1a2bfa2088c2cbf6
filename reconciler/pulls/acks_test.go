package pulls

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/command"
)

// crowd is a forge on which 150 users without write access acknowledge a deletion,
// and after them ada, who has write access.
type crowd struct {
	reconciler.Forge
	digest string // in the comments of the others
	asked  int    // for permissions
}

const digest = "0123456789abcdef"

func (f *crowd) CommandsOf(context.Context, int) (out []reconciler.CommandComment, _ error) {
	for i := range 200 {
		out = append(out, reconciler.CommandComment{ID: int64(i), Pull: 1, Author: fmt.Sprint("p", i%150),
			Line: "/berth ack-delete " + f.digest})
	}
	return append(out, reconciler.CommandComment{ID: 1000, Pull: 1, Author: "ada", Line: "/berth ack-delete " + digest}), nil
}

func (f *crowd) Permission(_ context.Context, login string) (reconciler.Permission, error) {
	f.asked++
	if login == "ada" {
		return reconciler.CanWrite, nil
	}
	return reconciler.CanRead, nil
}

func TestManyAcknowledgementsCostABoundedNumberOfRequests(t *testing.T) {
	t.Parallel()
	f := &crowd{digest: digest}
	a := New(Options{Forge: f, Log: slog.New(slog.DiscardHandler), Now: time.Now}).Acknowledgements
	out, err := a.find(t.Context(), 1, []string{digest}, commandID{})
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, maxAcks, f.asked)

	f.asked = 0
	out, err = a.find(t.Context(), 1, []string{digest}, commandID{1, 1000})
	require.NoError(t, err)
	require.Len(t, out, 1, "the command that is searched is read first")
	require.Equal(t, "ada", out[0].By.Login)
	require.Equal(t, maxAcks, f.asked)

	f.asked, f.digest = 0, "ffffffffffffffff"
	out, err = a.find(t.Context(), 1, []string{digest}, commandID{})
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.Equal(t, 1, f.asked, "an acknowledgement of another digest costs nothing")
}

// Each acknowledgement is tried for itself: that a deletion was decided again with
// one says nothing about another.
func TestEachAcknowledgementIsTriedForItself(t *testing.T) {
	t.Parallel()
	p := newPending[Acked, bool]()
	hers, his := Acked{commandID{1, 1}, "c", digest}, Acked{commandID{1, 2}, "c", digest}
	require.True(t, p.add(hers.id, hers))
	p.finish(hers.id, true)
	require.False(t, p.add(hers.id, hers), "it was tried")
	_, _, known := p.result(his.id)
	require.False(t, known)
	require.True(t, p.add(his.id, his))
	require.Equal(t, []Acked{his}, p.all())
	p.finish(his.id, true)
	for _, id := range []commandID{his.id, hers.id} {
		_, _, known = p.result(id)
		require.True(t, known)
		p.drop(id)
		_, _, known = p.result(id)
		require.False(t, known, "it is reported once")
	}
}

// While a deletion is decided with an acknowledgement, the command is not answered: the
// decision may be in force before its result is known here.
func TestAcknowledgementWaitsForItsDecision(t *testing.T) {
	t.Parallel()
	a := New(Options{Forge: &crowd{}, Log: slog.New(slog.DiscardHandler), Now: time.Now}).Acknowledgements
	c := &commands{env: a.env, acks: a}
	r := &request{
		Command: command.Command{Args: []string{digest}}, state: &reconciler.State{}, // nothing is held any more
		pull: reconciler.PullRequest{Number: 1, Merged: true}, comment: reconciler.CommandComment{ID: 7, Pull: 1, Author: "ada"},
	}
	a.pending.add(r.id(), Acked{id: r.id(), digest: digest})
	out, err := c.acknowledgeDeletion(t.Context(), r)
	require.NoError(t, err)
	require.True(t, out.wait)
}
