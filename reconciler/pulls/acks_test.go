package pulls

import (
	"berth/reconciler"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// crowd is a forge on which many acknowledge a deletion, of whom the last may.
type crowd struct {
	reconciler.Forge
	digest string // of what strangers say
	asked  int
}

const meant = "0123456789abcdef"

func (f *crowd) CommandsOf(context.Context, int) (out []reconciler.CommandComment, _ error) {
	for i := range 200 {
		out = append(out, reconciler.CommandComment{ID: int64(i), Pull: 1, Author: fmt.Sprint("p", i%150), Line: "/berth ack-delete " + f.digest})
	}
	return append(out, reconciler.CommandComment{ID: 1000, Pull: 1, Author: "ada", Line: "/berth ack-delete " + meant}), nil
}

func (f *crowd) Permission(_ context.Context, login string) (reconciler.Permission, error) {
	f.asked++
	if login == "ada" {
		return reconciler.CanWrite, nil
	}
	return reconciler.CanRead, nil
}

// What a crowd says costs a bounded number of questions, and only what is asked
// for costs any.
func TestACrowdsWordsCostLittle(t *testing.T) {
	t.Parallel()
	f := &crowd{digest: meant}
	r := New(Options{Forge: f, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	out, err := r.said(t.Context(), 1, []string{meant})
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, maxAcks, f.asked)

	f.asked = 0
	out, err = r.said(t.Context(), 1, []string{meant}, remarkID{1, 1000})
	require.NoError(t, err)
	require.Len(t, out, 1, "the word that is looked for is found in any crowd")
	require.Equal(t, "ada", out[0].By.Login)
	require.Equal(t, maxAcks, f.asked)

	f.asked, f.digest = 0, "ffffffffffffffff"
	out, err = r.said(t.Context(), 1, []string{meant})
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.Equal(t, 1, f.asked, "of what nobody asks for, nobody's right is asked")
}

// Each word is tried for itself: that a deletion was decided again with somebody
// else's says nothing of it.
func TestEachWordIsTriedForItself(t *testing.T) {
	t.Parallel()
	var a acks
	hers, his := Acked{1, "c", meant, remarkID{1, 1}}, Acked{1, "c", meant, remarkID{1, 2}}
	require.True(t, a.ask(hers))
	a.decided(a.all())
	require.False(t, a.ask(hers), "it was")
	require.False(t, a.tried(his.remark))
	require.True(t, a.ask(his))
	require.Equal(t, []Acked{his}, a.all())
	a.decided(a.all())
	require.True(t, a.tried(his.remark))
	require.False(t, a.tried(his.remark), "that is told once")
	require.True(t, a.tried(hers.remark))
}
