//go:build long

package loop_test

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// eventsRead notes that the events were read to their end.
type eventsRead struct {
	*gitrepo.Repo
	ended *atomic.Bool
}

func (r eventsRead) EventsSince(ctx context.Context, commit string, since time.Time) iter.Seq2[plan.Event, error] {
	return func(yield func(plan.Event, error) bool) {
		defer r.ended.Store(true)
		for e, err := range r.Repo.EventsSince(ctx, commit, since) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// A deleted instance can be read by its id and name for the retention time. The event
// log alone is enough, also after a restart.
func TestLongDeletedInstancesAreKnownThroughRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ahead atomic.Int64
	in := func(o *loop.Options) {
		o.Settings.Retention = 48 * time.Hour
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	d := w.start(in)
	train, text := instance("train", 1)
	w.put(map[string]string{train: strings.Replace(text, "name: train", "name: train, uid: u-1", 1)})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	deleted := func(id string) *plan.DeletedInstance {
		v, ok := d.View()
		if !ok {
			return nil
		}
		if one, ok := v.Deleted("physics", "lab", id); ok {
			return &one
		}
		return nil
	}
	require.Nil(t, deleted("train"))
	commit := w.put(nil, train)
	w.eventually("known", func() bool { return deleted("u-1") != nil })
	first := deleted("u-1")
	w.eventually("no status file", func() bool { return w.status("train") == nil })
	is := func(one *plan.DeletedInstance) {
		t.Helper()
		require.Equal(t, trainKey, one.Key)
		require.Equal(t, "batch", one.App)
		require.Equal(t, commit, one.Revision)
		require.WithinDuration(t, time.Now(), one.DeletedAt, time.Minute)
		require.True(t, first.DeletedAt.Equal(one.DeletedAt))
	}
	is(first)

	require.NoError(t, d.stop())
	d = w.start(in)
	w.eventually("known after a restart", func() bool { return deleted("u-1") != nil && deleted("train") != nil })
	is(deleted("u-1"))
	require.Nil(t, deleted("u-2"))

	// Another instance of that name is deleted too; the id still names the first one.
	w.put(map[string]string{train: strings.Replace(text, "name: train", "name: train, uid: u-2", 1)})
	w.eventually("running again", w.phase("train", plan.PhaseRunning))
	w.put(nil, train)
	w.eventually("the second", func() bool { return deleted("u-2") != nil })
	require.Equal(t, "u-2", deleted("train").ID)
	is(deleted("u-1"))

	ahead.Store(int64(49 * time.Hour))
	require.Nil(t, deleted("u-1"), "the retention time has passed")
	require.NoError(t, d.stop())
	var read atomic.Bool
	d = w.start(in, func(o *loop.Options) { o.Repo = eventsRead{o.Repo.(*gitrepo.Repo), &read} })
	w.eventually("the event log read", func() bool { _, ok := d.View(); return ok && read.Load() })
	require.Nil(t, deleted("u-2"))
}
