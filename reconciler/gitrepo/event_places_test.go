package gitrepo_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
)

// placed writes batches of events, at an hour each, and returns the tip.
func placed(t *testing.T, r reconciler.Repo, main string, start time.Time, hours []int, sizes ...int) (tip string) {
	t.Helper()
	n := 0
	for i, size := range sizes {
		b := batch(uint64(i+1), main)
		b.Events = nil
		for range size {
			n++
			b.Events = append(b.Events, plan.Event{EventID: fmt.Sprint("e", n), EventType: "apps.instance.running",
				OccurredAt: start.Add(time.Duration(hours[i]) * time.Hour), Version: "1", Payload: []byte(`{}`)})
		}
		b.Revision.Sequence = uint64(n)
		var err error
		tip, err = r.WriteStatus(t.Context(), tip, b)
		require.NoError(t, err)
	}
	return tip
}

// placeReader reads the event log by place.
type placeReader interface {
	EventPlace(ctx context.Context, commit string, since time.Time) (string, error)
	EventsAfter(ctx context.Context, commit, after string) (*statusbranch.EventReader, error)
}

// next returns the first page after a place.
func next(t *testing.T, r placeReader, tip, place string) (events []plan.PlacedEvent, reached string, err error) {
	t.Helper()
	log, err := r.EventsAfter(t.Context(), tip, place)
	if err != nil {
		return nil, "", err
	}
	return log.Next(t.Context())
}

// after returns the ids of all events after a place, with their places.
func after(t *testing.T, r placeReader, tip, place string) (ids, places []string) {
	t.Helper()
	log, err := r.EventsAfter(t.Context(), tip, place)
	require.NoError(t, err)
	for {
		events, reached, err := log.Next(t.Context())
		require.NoError(t, err)
		for _, e := range events {
			ids, places = append(ids, e.EventID), append(places, e.Place)
		}
		if reached == place {
			require.True(t, log.IsEnd())
			return ids, places
		}
		place = reached
	}
}

// From each place the log goes on with the next event, each event once and in the order of writing, whatever the clock
// said, also for a reader that has fetched everything anew (requirement E7).
func TestEventsFollowEachPlace(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tip := placed(t, r, fetch(t, r).Main, start, []int{0, 0, 30, 1, 2}, 2, 1, 3, 1, 2) // the third batch: a clock 30 hours fast
	again := open(t, s)
	require.Equal(t, tip, fetch(t, again).Status)
	want := []string{"e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9"}
	for name, reader := range map[string]placeReader{"the writer": r, "a mirror fetched anew": again} {
		ids, places := after(t, reader, tip, plan.FirstPlace)
		require.Equal(t, want, ids, name)
		for i, place := range places {
			ids, _ := after(t, reader, tip, place)
			require.Equal(t, want[i+1:], append([]string{}, ids...), "%s after %s", name, place)
		}
		last, err := reader.EventPlace(t.Context(), tip, time.Time{})
		require.NoError(t, err)
		require.Equal(t, places[8], last)
		for hour, first := range map[int]string{0: "e1", 1: "e4", 31: ""} { // what has a later place than an event since then
			place, err := reader.EventPlace(t.Context(), tip, start.Add(time.Duration(hour)*time.Hour))
			require.NoError(t, err)
			if ids, _ := after(t, reader, tip, place); first == "" {
				require.Empty(t, ids)
			} else {
				require.Equal(t, first, ids[0], "since hour %d", hour)
			}
		}
	}
	empty, reached, err := next(t, r, "", plan.FirstPlace)
	require.NoError(t, err)
	require.Empty(t, empty)
	require.Equal(t, plan.FirstPlace, reached)
}

// A page ends at its bound, and the next one begins there.
func TestEventPagesAreBounded(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	tip := placed(t, r, fetch(t, r).Main, time.Now().UTC(), []int{0, 0}, 700, 20)
	events, reached, err := next(t, r, tip, plan.FirstPlace)
	require.NoError(t, err)
	require.Len(t, events, 512)
	require.Equal(t, events[511].Place, reached)
	ids, _ := after(t, r, tip, plan.FirstPlace)
	require.Len(t, ids, 720)
	require.Equal(t, "e720", ids[719])
}

// What is not the place of an event in this log is an error, not another place.
func TestForeignPlacesAreRefused(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	tip := placed(t, r, fetch(t, r).Main, time.Now().UTC(), []int{0, 0}, 2, 1)
	_, places := after(t, r, tip, plan.FirstPlace)
	segment := strings.TrimSuffix(places[1], "-2")
	for _, place := range []string{"", "x", "1", "-1-1-1", "1-1", "1-1-1-1", "99-1-1", "1-1-1", "0" + places[0], "+" + places[0], segment,
		segment + "-3", segment + "--1", segment + "-01", places[0] + " ", places[0] + "\n", places[0] + "0"} {
		_, _, err := next(t, r, tip, place)
		require.ErrorIs(t, err, plan.ErrNoPlace, "%q", place)
	}
}

// Damaged lines and segments are skipped, and the reader goes on behind them.
func TestDamagedEventsHaveNoPlace(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tip := placed(t, r, fetch(t, r).Main, start, []int{0, 1, 2}, 1, 2, 1)
	files, err := s.Files(tip)
	require.NoError(t, err)
	for path := range files {
		if len(path) > 20 && path[:len("events/2026/03/01/13")] == "events/2026/03/01/13" {
			s.MustCommit(t, reconciler.BranchStatus, gittest.Commit{Message: "damage", Files: map[string]string{path: "{\n{"}})
		}
	}
	tip = fetch(t, r).Status
	ids, places := after(t, r, tip, plan.FirstPlace)
	require.Equal(t, []string{"e1", "e4"}, ids)
	rest, _ := after(t, r, tip, places[0])
	require.Equal(t, []string{"e4"}, rest)
}
