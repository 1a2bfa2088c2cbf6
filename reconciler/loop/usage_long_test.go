//go:build long

package loop_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
)

// The days of a unit that was deleted and created again under its name begin anew: the days before, for which
// its accounting has nothing, are not waited for. The first day of an idle unit survives a restart.
func TestLongUsageOfARecreatedUnitIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var clock testClock
	clock.set(firstDay)
	quick := func(o *loop.Options) { o.Settings.Usage, o.Now = 20*time.Millisecond, clock.now }
	d := w.start(quick)
	files := map[string]string{commonsPath: commonsText("  billing_policy_ref: dear\n"), attachmentPath: attachmentText(""),
		viewPath: viewText("tenant")}
	w.put(operatorFiles(""))
	w.put(files)
	attached := func() bool { return w.attachment(commons) == "attached Attached" }
	w.eventually("attached", attached)
	set := func(hours time.Duration) {
		clock.set(firstDay.Add(hours * time.Hour))
		require.NoError(t, w.world.SetClock(commons, firstDay.Add(hours*time.Hour)))
	}
	awaits := func(want string) {
		t.Helper()
		w.eventually(want, func() bool { _, closings := w.parts(); return strings.Join(closings, ", ") == want })
	}
	set(25)
	awaits("2026-10-30 0 0 0")
	w.put(nil, viewPath, attachmentPath)
	w.eventually("attachment gone", func() bool { return w.attachment(commons) == "" })
	w.put(nil, commonsPath)
	w.eventually("runtime gone", func() bool { return w.unit(commons) == nil })
	clock.set(firstDay.Add(10 * 24 * time.Hour))
	w.put(files)
	w.eventually("attached again", attached)
	require.Equal(t, "2026-11-09", w.unit(commons).BegunOn)
	set(10*24 + 1)
	d.stop()
	set(12*24 + 1) // two days later, and nothing was closed
	w.start(quick)
	awaits("2026-10-30 0 0 0, 2026-11-09 0 0 0, 2026-11-10 0 0 0")
}

// A wrong clock closes no day that lies ahead, and loses nothing: neither one of the runtime that is ahead, nor
// one of Berth that is behind.
func TestLongUsageSurvivesWrongClocks(t *testing.T) {
	t.Parallel()
	day := firstDay
	var clock testClock
	clock.set(day)
	_, set, awaits := usageOfCommons(t, func(o *loop.Options) { o.Now = clock.now })
	clock.set(day.Add(25 * time.Hour))
	first := usedBy(1, day, time.Hour, 2*time.Hour)
	set(day.AddDate(1, 0, 0), first)
	awaits("1 2026-10-30 3600", "2026-10-30 1 3600 3600")
	late := usedBy(2, day.AddDate(0, 0, 1), 0, time.Hour)
	set(day.Add(26*time.Hour), first, late)
	awaits("1 2026-10-30 3600, 2 2026-10-31 3600", "2026-10-30 1 3600 3600")
}
