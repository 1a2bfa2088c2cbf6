//go:build long

package slurm_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// The bill of a month equals sreport to the second, line by line, for the month and for each day, by
// user and resource, and each run equals its record in sacct. Jobs run over midnights and both edges of the month,
// were suspended, share ids, or are lost. The end of a lost job changes the records of open days, and adds
// corrections of closed ones. No day closes before (requirement A13).
func TestLongBillOfAMonthEqualsReports(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	month := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	l.past(t, 400, month.Add(-48*time.Hour), 35*24*time.Hour, 200_000, true) // both edges of the month too
	reading, err := l.read(t, time.Unix(0, 0))
	require.NoError(t, err)

	next := month.AddDate(0, 1, 0)
	all, byDay := amounts{}, map[string]amounts{}
	cpus := map[string]int64{}
	for _, j := range reading.Jobs {
		require.False(t, j.Ended.After(usage.NextDay(j.Started)), "%+v", j)
		if j.Started.Before(month) || !j.Started.Before(next) {
			continue
		}
		if j.GPUs > 0 {
			require.Equal(t, "a100", j.GPUType)
		}
		all.add(j)
		if byDay[j.StartDay()] == nil {
			byDay[j.StartDay()] = amounts{}
		}
		byDay[j.StartDay()].add(j)
	}
	require.Equal(t, l.report(t, month, next), all)
	require.Len(t, byDay, 31)
	for day := month; day.Before(next); day = day.AddDate(0, 0, 1) {
		if day.Day()%10 == 1 { // four of them: a call takes a moment
			require.Equal(t, l.report(t, day, usage.NextDay(day)), byDay[day.Format(time.DateOnly)], "%s", day)
		}
	}
	require.Greater(t, l.sacctLines(t, reading.Jobs, month, next), 300)
	records := attributed(reading.Jobs)
	l.checkBill(t, records, month, next)

	_, _, err = l.day(t, month)
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "which slurmctld does not know")
	before := l.report(t, month, next)
	down := time.Date(2026, 11, 8, 0, 0, 0, 0, time.UTC)
	l.sql(t, fmt.Sprintf(`INSERT INTO C_event_table (time_start, time_end, node_name, reason, reason_uid, state, tres)
  VALUES (%d, %d, 'gpu-2', 'power', 0, 1, '1=2,2=4000,4=1,5=2,1001=2');`, down.Unix(), down.Add(6*time.Hour).Unix()))
	l.tool(t, l.unit, "sacctmgr show runaway <<'END'\ny\nEND\n")
	l.tool(t, l.unit, "sacctmgr -i rollup")
	require.NotEqual(t, before, l.report(t, month, next))
	reading, err = l.read(t, time.Unix(0, 0))
	require.NoError(t, err)
	records = l.checkClosed(t, records, reading.Jobs, month, next)
	l.sacctLines(t, reading.Jobs, month, next)
	l.checkBill(t, records, month, next)
	for _, j := range reading.Jobs {
		cpus[j.StartDay()] += j.Elapsed() * int64(j.CPUs)
	}

	charged, ok, err := l.day(t, month)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, cpus[month.Format(time.DateOnly)], charged.CPUs)
	l.checkIdle(t, records, cpus, down)
	_, ok, err = l.day(t, reading.At.Truncate(24*time.Hour))
	require.NoError(t, err)
	require.False(t, ok, "the day is not over")
}

// checkClosed checks the bill of a month whose first half was closed before a later reading changed it: the records of
// closed days stay, and corrections make up the difference. It returns the records of a month that is open.
func (l ledger) checkClosed(t testing.TB, records []usage.Record, jobs []usage.Job, month, next time.Time) []usage.Record {
	t.Helper()
	first := month.AddDate(0, 0, 15)
	book := usage.Book{First: first.Format(time.DateOnly), Now: attributed(jobs)}
	var bills, closed []usage.Record
	for _, r := range records {
		if r.Day < book.First {
			closed = append(closed, r)
		}
		if r.Day >= first.AddDate(0, 0, -1).Format(time.DateOnly) {
			book.Have = append(book.Have, r)
		}
	}
	bills = slices.Clone(closed)
	corrections := 0
	for _, open := range book.OpenDays(closed) {
		for _, r := range open {
			if r.Corrects != "" {
				corrections++
			}
			if r.Corrects == "" || r.Corrects >= month.Format(time.DateOnly) {
				bills = append(bills, r)
			}
		}
	}
	require.Positive(t, corrections)
	l.checkBill(t, bills, month, next)
	book = usage.Book{Have: records, Now: attributed(jobs)}
	return slices.Concat(slices.Collect(maps.Values(book.OpenDays(nil)))...)
}

// utilization returns the columns of sreport's Utilization of a day by resource.
func (l ledger) utilization(t testing.TB, day time.Time) map[string]map[string]int64 {
	t.Helper()
	rows := l.lines(t, fmt.Sprintf("sreport -P -t Seconds -T cpu,gres/gpu cluster Utilization start=uts%d end=uts%d | grep '|'", day.Unix(),
		usage.NextDay(day).Unix()))
	all := map[string]map[string]int64{}
	for _, row := range rows[1:] {
		all[row[1]] = map[string]int64{}
		for i, column := range rows[0][2:] {
			n, err := strconv.ParseInt(row[i+2], 10, 64)
			require.NoError(t, err)
			all[row[1]][column] = n
		}
	}
	return all
}

// sacctLines checks the parts of a month against sacct, run by run: the time of CPUs, GPUs and memory, each
// of what sacct says of it. It returns the number of runs.
func (l ledger) sacctLines(t testing.TB, jobs []usage.Job, month, next time.Time) (lines int) {
	t.Helper()
	type line struct{ elapsed, cpus, gpus, memory int64 }
	ours, theirs := map[string]line{}, map[string]line{}
	for _, j := range jobs {
		if j.Started.Before(month) || !j.Started.Before(next) {
			continue
		}
		name := fmt.Sprintf("%d|%d|%s|%s", j.JobID, j.Submitted.Unix(), j.ProjectID, j.User)
		o := ours[name]
		ours[name] = line{o.elapsed + j.Elapsed(), o.cpus + j.Elapsed()*int64(j.CPUs), o.gpus + j.Held()*int64(j.GPUs),
			o.memory + j.Held()*int64(j.MemoryMiB)}
	}
	for _, f := range l.lines(t, fmt.Sprintf("SLURM_TIME_FORMAT=%%s sacct -nPXaD --noconvert --truncate -S uts%d -E uts%d "+
		"--format=JobIDRaw,Submit,Account,User,ElapsedRaw,Start,End,AllocTRES", month.Unix(), next.Unix())) {
		start, err := strconv.ParseInt(f[5], 10, 64)
		if err != nil { // it waited
			continue
		}
		end, err := strconv.ParseInt(f[6], 10, 64)
		require.NoError(t, err)
		elapsed, err := strconv.ParseInt(f[4], 10, 64)
		require.NoError(t, err)
		given := map[string]int64{}
		for _, entry := range strings.Split(f[7], ",") {
			kind, amount, _ := strings.Cut(entry, "=")
			given[kind], err = strconv.ParseInt(strings.TrimSuffix(amount, "M"), 10, 64)
			require.NoError(t, err)
		}
		if end > start {
			theirs[strings.Join(f[:4], "|")] = line{elapsed, elapsed * given["cpu"], (end - start) * given["gres/gpu"],
				(end - start) * given["mem"]}
		}
	}
	for name, o := range ours {
		if o == (line{}) { // of no second
			delete(ours, name)
		}
	}
	require.Equal(t, theirs, ours)
	return len(theirs)
}

func (l ledger) day(t testing.TB, at time.Time) (usage.DayReport, bool, error) {
	t.Helper()
	return l.rt.AccountedDay(t.Context(), l.scope(), runtimes.Stamp{Epoch: 1}, at)
}

// checkIdle checks what no job had on the days around one on which a node was down for 6 hours: it equals
// sreport, and the lines of it add up to all of it. cpus are the CPU seconds of the days.
func (l ledger) checkIdle(t *testing.T, records []usage.Record, cpus map[string]int64, down time.Time) {
	t.Helper()
	var closings []usage.Closing
	idle, partly := int64(0), 0
	for at := down.AddDate(0, 0, -5); !at.After(down.AddDate(0, 0, 1)); at = usage.NextDay(at) { // the last jobs end within
		report, ok, err := l.day(t, at)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, cpus[at.Format(time.DateOnly)], report.CPUs)
		want := l.utilization(t, at)
		require.Equal(t, &usage.Unused{
			IdleCPUs: want["cpu"]["Idle"] + want["cpu"]["Planned"], DownCPUs: want["cpu"]["Down"],
			IdleGPUs: want["gres/gpu"]["Idle"] + want["gres/gpu"]["Planned"], DownGPUs: want["gres/gpu"]["Down"],
		}, report.Unused, "%s", at)
		if report.Unused.IdleCPUs > 0 && report.CPUs > 0 {
			partly++
		}
		if at.Equal(down) {
			require.Equal(t, &usage.Unused{IdleCPUs: 4*86400 - 2*6*3600, DownCPUs: 2 * 6 * 3600, IdleGPUs: 4*86400 - 2*6*3600,
				DownGPUs: 2 * 6 * 3600}, report.Unused)
		}
		idle += report.Unused.IdleCPUs
		closings = append(closings, usage.Closing{Cluster: l.name, Day: at.Format(time.DateOnly), Unit: sharedKey.String(),
			OwnerID: "physics", Accounted: report.CPUs,
			Projects: []string{"physics.lhc", "physics.ligo"}, Unused: report.Unused})
	}
	require.Positive(t, partly, "a day with jobs and idle CPUs")
	for _, split := range []string{schema.SplitNone, schema.SplitEqual, schema.SplitByUse} {
		seconds, cost := int64(0), int64(0)
		for _, s := range bill(records, closings, split) {
			if s.Kind == usage.KindShared {
				seconds, cost = seconds+s.CPUSeconds, cost+s.Price.Millionths
			}
		}
		require.Equal(t, []int64{idle, idle}, []int64{seconds, cost}, "a millionth a second, split %s", split)
	}
}
