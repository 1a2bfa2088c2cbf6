package slurm_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
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

func newLedger(t testing.TB) ledger {
	c := newSharing(t)
	u := c.share(c.unit(onePartition, nil, &schema.OnJobs{CancelAfterSeconds: 1}, 0, 1), lhc(), ligo())
	c.carry(t, u, false)
	l := ledger{c, u, cluster.Name(u.Effective.Key)}
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

func (l ledger) read(t testing.TB, since time.Time) (runtimes.UsageReading, error) {
	t.Helper()
	return l.rt.ReadUsage(t.Context(), l.scope(), runtimes.Stamp{Epoch: 1}, runtimes.UsageRange{Since: since})
}

func (l ledger) sql(t testing.TB, statements string) string {
	t.Helper()
	statements = strings.ReplaceAll(statements, "C_", l.name+"_")
	return l.tool(t, l.unit, "mariadb --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock slurm_acct_"+l.name+" <<'END'\n"+
		statements+"\nEND\n")
}

// past adds n jobs that start within a time and run for up to longest seconds: runs over midnights, and ids that
// were used twice. With odd there are suspensions too, and jobs that accounting has as active and nobody knows.
func (l ledger) past(t testing.TB, n int, from time.Time, within time.Duration, longest int, odd bool) {
	t.Helper()
	start, length := from.Unix(), int64(within.Seconds())
	l.sql(t, fmt.Sprintf(`
CREATE TABLE clones AS SELECT j.*, s.seq AS seq FROM C_job_table j, seq_1_to_%[1]d s WHERE j.id_job = 1 + s.seq %% 2;
UPDATE clones SET job_db_inx = 1000 + seq, id_job = 5000 + seq %% (%[1]d - %[1]d DIV 10), time_start = %[2]d + seq * %[3]d DIV %[1]d, time_suspended = 0;
UPDATE clones SET time_submit = time_start - seq %% 60, time_eligible = time_start - seq %% 60, time_end = time_start + (seq * 7919) %% %[4]d, state = 3 + seq %% 3;
UPDATE clones SET tres_alloc = CONCAT('1=', 1 + seq %% 7, ',2=', 64 * (1 + seq %% 5), ',4=1,5=', 1 + seq %% 7, IF(seq %% 3 = 0, ',1001=1', ''));
UPDATE clones SET time_suspended = (time_end - time_start) DIV 4 WHERE %[5]t AND seq %% 5 = 0;
INSERT INTO C_suspend_table (job_db_inx, id_assoc, time_start, time_end)
  SELECT job_db_inx, id_assoc, time_start + (time_end - time_start) DIV 3, time_start + (time_end - time_start) DIV 3 + time_suspended FROM clones WHERE time_suspended > 0;
UPDATE clones SET time_end = 0, state = 1 WHERE %[5]t AND (seq %% 97 = 0 OR seq %% 100 = 0);
ALTER TABLE clones DROP COLUMN seq;
INSERT INTO C_job_table SELECT * FROM clones;
DROP TABLE clones;
UPDATE C_event_table SET time_start = %[2]d;
UPDATE cluster_table SET creation_time = %[2]d;
UPDATE C_last_ran_table SET hourly_rollup = %[2]d, daily_rollup = %[2]d, monthly_rollup = %[2]d;`, n, start, length, longest, odd))
	l.tool(t, l.unit, "sacctmgr -i rollup")
}

// lines returns the fields of a table that one of Slurm's tools prints, without blank lines.
func (l ledger) lines(t testing.TB, command string) (rows [][]string) {
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

func (l ledger) report(t testing.TB, from, to time.Time) amounts {
	t.Helper()
	all := amounts{}
	for _, f := range l.lines(t, fmt.Sprintf("sreport -nP -t Seconds -T cpu,mem,gres/gpu,billing cluster AccountUtilizationByUser "+
		"format=Account,Login,TresName,Used start=%s end=%s",
		from.Format("2006-01-02T15:04:05"), to.Format("2006-01-02T15:04:05"))) {
		n, err := strconv.ParseInt(f[3], 10, 64)
		require.NoError(t, err)
		if f[1] != "" && n > 0 {
			all[[3]string{f[0], f[1], f[2]}] = n
		}
	}
	return all
}

// bill returns the lines of records, with prices that are easy to check.
func bill(records []usage.Record, closings []usage.Closing, split string) []usage.Sum {
	card := &schema.RateCard{Spec: schema.RateCardSpec{
		Currency: "EUR",
		Prices:   schema.Prices{CPUHour: 3600, MemoryHour: 3600 * 1024, GPUHours: []schema.GPUPrice{{Type: "a100", Price: 5 * 3600}}},
		Shared:   &schema.SharedCost{Split: split, IdleCPUHour: 3600},
	}}
	return usage.Sums(records, &usage.Terms{Cards: map[string]*schema.RateCard{schema.DefaultRates: card}, Closings: closings})
}

// sharedKey is the key of the cluster as a shared runtime of its projects.
var sharedKey = schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "pool"}

func attributed(jobs []usage.Job) (all []usage.Record) {
	for _, j := range jobs {
		all = append(all, usage.New(sharedKey, usage.Record{AppSlug: "slurm"}, j, nil))
	}
	return all
}

// checkBill checks the bill of a month against sreport, line by line: the projects are accounts there.
func (l ledger) checkBill(t testing.TB, records []usage.Record, month, next time.Time) {
	t.Helper()
	want, got := map[string]int64{}, map[string]int64{}
	for of, seconds := range l.report(t, month, next) {
		want[of[0]+" "+of[2]] += seconds
		switch of[2] {
		case "cpu", "mem": // a millionth a second
			want[of[0]+" cost"] += seconds
		case "gres/gpu":
			want[of[0]+" cost"] += 5 * seconds
		}
	}
	for of := range want {
		if strings.HasSuffix(of, " billing") {
			delete(want, of)
		}
	}
	for _, s := range bill(records, nil, schema.SplitNone) {
		if s.Month != month.Format("2006-01") {
			continue
		}
		require.Equal(t, sharedKey.String(), s.Unit)
		got[s.ProjectID+" cpu"], got[s.ProjectID+" gres/gpu"], got[s.ProjectID+" mem"] = s.CPUSeconds, s.GPUSeconds, s.MemoryMiBSeconds
		got[s.ProjectID+" cost"] = s.Price.Millionths
	}
	require.Equal(t, want, got)
}

// checkRunning checks the usage until now of a job that runs, which a collection does not have.
func (l ledger) checkRunning(t testing.TB) {
	t.Helper()
	id := l.job(t, l.unit, alice, "physics.lhc", "sleep 600", "--mem=64M")
	l.await(t, l.unit, id, slurmtest.Running)
	eventually(t, "accounting has the job that runs", func() (bool, string) {
		today := time.Now().UTC().Truncate(24 * time.Hour)
		reading, err := l.rt.ReadUsage(t.Context(), l.scope(), runtimes.Stamp{Epoch: 1}, runtimes.UsageRange{Since: today, ToNow: true})
		i := slices.IndexFunc(reading.Jobs, func(j usage.Job) bool { return strconv.Itoa(j.JobID) == id })
		if err != nil || i < 0 {
			return false, fmt.Sprint(reading, err)
		}
		j := reading.Jobs[i]
		require.Equal(t, []any{reading.At.UTC(), j.Held(), ""}, []any{j.Ended, j.Elapsed(), j.State})
		return true, ""
	})
	l.tool(t, l.unit, "scancel "+id)
}

// The usage of a unit's jobs is recorded before its database is removed, and equals the report of
// sreport at that time, by user and resource. Jobs that slurmctld lost are ended first: sreport charges them
// until then (requirement A13).
func TestUsageOfARemovedUnitEqualsReports(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.checkRunning(t)
	from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -4)
	to := from.AddDate(0, 0, 3)
	l.past(t, 200, from, 40*time.Hour, 20_000, true)
	charged := l.report(t, from, to)

	l.remote = fmt.Errorf("the remote is down: %w", runtimes.ErrWaiting)
	eventually(t, "only the record is missing", func() (bool, string) {
		err := l.apply(t, l.plan(t, l.unit, true))
		require.ErrorIs(t, err, runtimes.ErrWaiting)
		return strings.Contains(err.Error(), "the remote is down"), err.Error()
	})
	l.tool(t, l.unit, "sacctmgr -i rollup")
	reported := l.report(t, from, to)
	require.NotEqual(t, charged, reported, "no job was lost")
	l.remote = nil
	l.carry(t, l.unit, true)

	all := amounts{}
	for _, j := range l.parts {
		if j.Started.Before(to) {
			all.add(j)
		}
	}
	require.Equal(t, reported, all)
}
