package slurm_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
	"berth/schema/usage"
)

// ledger is the accounting database of a unit into which a test writes jobs of the past.
type ledger struct {
	*company
	unit plan.Unit
	name string
}

func newLedger(t *testing.T) ledger {
	c := newSharing(t)
	u := c.share(c.unit(onePartition, nil, &schema.OnJobs{CancelAfterSeconds: 1}, 0, 1), lhc(), ligo())
	c.carry(t, u, false)
	l := ledger{c, u, slurm.ClusterName(u.Effective.Key)}
	bobs := c.job(t, u, bob, "physics.ligo", "true", "--gres=gpu:1", "--cpus-per-task=2", "--mem=64M")
	alices := c.job(t, u, alice, "physics.lhc", "true", "--mem=64M", "--gres=gpu:1")
	for _, id := range []string{bobs, alices} {
		c.await(t, u, id, slurmtest.Completed)
	}
	eventually(t, "accounting has the jobs", func() (bool, string) {
		r, err := l.read(t, time.Unix(0, 0))
		return err == nil && len(r.Jobs) == 2, fmt.Sprint(r, err)
	})
	return l
}

func (l ledger) scope() runtimes.Scope {
	return runtimes.Scope{Key: l.unit.Effective.Key, Members: l.unit.Members}
}

func (l ledger) read(t *testing.T, since time.Time) (runtimes.UsageReading, error) {
	t.Helper()
	return l.rt.ReadUsage(t.Context(), l.scope(), runtimes.Stamp{Epoch: 1}, since)
}

func (l ledger) sql(t *testing.T, statements string) string {
	t.Helper()
	statements = strings.ReplaceAll(statements, "C_", l.name+"_")
	return l.tool(t, l.unit, "mariadb --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock slurm_acct_"+l.name+" <<'END'\n"+statements+"\nEND\n")
}

// past adds n jobs that start within a time and run for up to longest seconds: runs over midnights, with
// suspensions, ids that were used twice, and some that still run.
func (l ledger) past(t *testing.T, n int, from time.Time, within time.Duration, longest int) {
	t.Helper()
	start, length := from.Unix(), int64(within.Seconds())
	l.sql(t, fmt.Sprintf(`
CREATE TABLE clones AS SELECT j.*, s.seq AS seq FROM C_job_table j, seq_1_to_%[1]d s WHERE j.id_job = 1 + s.seq %% 2;
UPDATE clones SET job_db_inx = 1000 + seq, id_job = 5000 + seq %% (%[1]d - %[1]d DIV 10), time_start = %[2]d + seq * %[3]d DIV %[1]d, time_suspended = 0;
UPDATE clones SET time_submit = time_start - seq %% 60, time_eligible = time_start - seq %% 60, time_end = time_start + (seq * 7919) %% %[4]d, state = 3 + seq %% 3;
UPDATE clones SET tres_alloc = CONCAT('1=', 1 + seq %% 7, ',2=', 64 * (1 + seq %% 5), ',4=1,5=', 1 + seq %% 7, IF(seq %% 3 = 0, ',1001=1', ''));
UPDATE clones SET time_suspended = (time_end - time_start) DIV 4 WHERE seq %% 5 = 0;
INSERT INTO C_suspend_table (job_db_inx, id_assoc, time_start, time_end)
  SELECT job_db_inx, id_assoc, time_start + (time_end - time_start) DIV 3, time_start + (time_end - time_start) DIV 3 + time_suspended FROM clones WHERE time_suspended > 0;
UPDATE clones SET time_end = 0, state = 1 WHERE seq %% 97 = 0;
ALTER TABLE clones DROP COLUMN seq;
INSERT INTO C_job_table SELECT * FROM clones;
DROP TABLE clones;
UPDATE C_event_table SET time_start = %[2]d;
UPDATE cluster_table SET creation_time = %[2]d;
UPDATE C_last_ran_table SET hourly_rollup = %[2]d, daily_rollup = %[2]d, monthly_rollup = %[2]d;`, n, start, length, longest))
	l.tool(t, l.unit, "sacctmgr -i rollup")
}

// lines returns the fields of a table that one of Slurm's tools prints, without blank lines.
func (l ledger) lines(t *testing.T, command string) (rows [][]string) {
	t.Helper()
	for line := range strings.Lines(l.tool(t, l.unit, command)) {
		if line = strings.TrimSpace(line); line != "" {
			rows = append(rows, strings.Split(line, "|"))
		}
	}
	return rows
}

// amounts are the seconds of a user of an account by kind, as sreport names them.
type amounts map[[3]string]int64

func (a amounts) add(j usage.Job) {
	for kind, n := range map[string]int{"cpu": j.CPUs, "mem": j.MemoryMiB, "gres/gpu": j.GPUs, "billing": j.Billing} {
		sum := j.Held() * int64(n)
		if kind == "cpu" {
			sum = j.Elapsed() * int64(n)
		}
		if sum > 0 {
			a[[3]string{j.ProjectID, j.User, kind}] += sum
		}
	}
}

func (l ledger) report(t *testing.T, from, to time.Time) amounts {
	t.Helper()
	all := amounts{}
	for _, f := range l.lines(t, fmt.Sprintf("sreport -nP -t Seconds -T cpu,mem,gres/gpu,billing cluster AccountUtilizationByUser format=Account,Login,TresName,Used start=%s end=%s",
		from.Format("2006-01-02T15:04:05"), to.Format("2006-01-02T15:04:05"))) {
		n, err := strconv.ParseInt(f[3], 10, 64)
		require.NoError(t, err)
		if f[1] != "" && n > 0 {
			all[[3]string{f[0], f[1], f[2]}] = n
		}
	}
	return all
}

// The bill of a month equals what sreport has to the second, for the month and for each day, by user
// and resource, and what sacct has line by line. Jobs run over midnights and both edges of the month, were
// suspended, share ids, or still run (requirement A13).
func TestBillOfAMonthEqualsReports(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	month := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	l.past(t, 400, month.Add(-48*time.Hour), 35*24*time.Hour, 200_000) // both edges of the month too
	reading, err := l.read(t, time.Unix(0, 0))
	require.NoError(t, err)

	next := month.AddDate(0, 1, 0)
	all, byRun, byDay := amounts{}, map[string]int64{}, map[string]amounts{}
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
		if byDay[j.Day()] == nil {
			byDay[j.Day()] = amounts{}
		}
		byDay[j.Day()].add(j)
		cpus[j.Day()] += j.Elapsed() * int64(j.CPUs)
		byRun[fmt.Sprintf("%d|%d|%s|%s", j.JobID, j.Submitted.Unix(), j.ProjectID, j.User)] += j.Elapsed()
	}
	require.Equal(t, l.report(t, month, next), all)
	require.Len(t, byDay, 31)
	for day := month; day.Before(next); day = day.AddDate(0, 0, 1) {
		if day.Day()%10 == 1 { // four of them: a call takes a moment
			require.Equal(t, l.report(t, day, usage.NextDay(day)), byDay[day.Format(time.DateOnly)], "%s", day)
		}
	}
	lines := 0
	for _, f := range l.lines(t, fmt.Sprintf("SLURM_TIME_FORMAT=%%s sacct -nPXaD --noconvert --truncate -S uts%d -E uts%d --format=JobIDRaw,Submit,Account,User,ElapsedRaw,Start", month.Unix(), next.Unix())) {
		if f[5] == "None" || f[5] == "Unknown" {
			continue
		}
		require.Equal(t, f[4], fmt.Sprint(byRun[strings.Join(f[:4], "|")]), "%v", f)
		lines++
	}
	require.Greater(t, lines, 300)

	charged, ok, err := l.rt.AccountedDay(t.Context(), l.scope(), runtimes.Stamp{Epoch: 1}, month)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, cpus[month.Format(time.DateOnly)], charged)
	_, ok, err = l.rt.AccountedDay(t.Context(), l.scope(), runtimes.Stamp{Epoch: 1}, reading.At.Truncate(24*time.Hour))
	require.NoError(t, err)
	require.False(t, ok, "the day is not over")
}
