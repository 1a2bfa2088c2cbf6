package slurm

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/schema"
	"berth/schema/usage"
)

// jobRecords reads what accounting knows of jobs, and ends those that slurmctld has lost.
type jobRecords struct{ *control }

// recordUsage gives the records of an account's jobs to Berth, before their account or database is removed: the
// jobs have ended, and slurmdbd may hear of it a moment later. account "" means every one. A job
// that never ran has used nothing.
func (c jobRecords) recordUsage(ctx context.Context, account string) error {
	ended, err := c.finalUsage(ctx, account)
	if err != nil || len(ended) == 0 {
		return err
	}
	return c.keepUsage(ctx, ended)
}

// finalUsage returns lastUsage once accounting lacks nothing; none if Berth does not want it.
func (c jobRecords) finalUsage(ctx context.Context, account string) (ended []usage.Job, err error) {
	if c.keepUsage == nil {
		return nil, nil
	}
	began := time.Now()
	err = c.env.poll(ctx, "accounting records at "+c.host.Name(), func(ctx context.Context) (done bool, lacks string, err error) {
		ended, lacks, err = c.lastUsage(ctx, account)
		if err == nil && lacks != "" && time.Since(began) >= c.env.timeouts.Ready/2 {
			err = waiting("%s", lacks)
		}
		return err == nil && lacks == "", lacks, err
	})
	return ended, err
}

// earliest is before all jobs of clusters that Berth made. sacct refuses a time near 1970.
const earliest = 1_577_836_800 // 2020-01-01

// lastUsage returns the usage of the runs of an account's jobs by day, or the data that accounting lacks. Jobs that
// slurmctld has lost are ended.
func (c jobRecords) lastUsage(ctx context.Context, account string) (ended []usage.Job, lacks string, err error) {
	unsent, err := ask(ctx, c.control, cli.Unsent())
	if err != nil || unsent > 0 {
		return nil, lacksMessages(unsent), err
	}
	at, err := ask(ctx, c.control, cli.Clock())
	if err != nil {
		return nil, "", err
	}
	known, err := c.endedJobs(ctx, account)
	if err != nil {
		return nil, "", err
	}
	runs, err := c.runs(ctx, account, earliest, time.Now().Add(24*time.Hour).Unix()) // the host's clock may be ahead
	if err != nil {
		return nil, "", err
	}
	runs, known = c.withoutUnread(runs, known)
	// The queued jobs of a project are cancelled before, so that one that waits there has ended, too.
	active := slices.IndexFunc(runs, func(r cli.Run) bool { return r.Ended == 0 && (r.Started != 0 || account != "") })
	if active >= 0 {
		return nil, fmt.Sprintf("accounting has job %d as active, which has ended", runs[active].ID), c.endRunaways(ctx)
	}
	if lacks = lacksJob(runs, known, at.Add(-24*time.Hour).Unix(), at.Unix()); lacks != "" {
		return nil, lacks, nil
	}
	ended, err = c.used(ctx, runs, time.Time{}, time.Time{})
	return ended, "", err
}

func lacksMessages(unsent int) string {
	return fmt.Sprintf("slurmctld has %d messages that accounting lacks", unsent)
}

// endedJobs returns the jobs of an account that slurmctld has and that have ended; "": of every one. It returns
// none where a host cannot print them, as there may be too many.
func (c jobRecords) endedJobs(ctx context.Context, account string) ([]cli.EndedJob, error) {
	known, err := ask(ctx, c.control, cli.EndedJobs(account))
	if runtimes.IsTooLong(err) {
		c.log.Warn("jobs that have just ended are not compared with accounting", "host", c.host.Name(), "reason", err.Error())
		return nil, nil
	}
	return known, err
}

// lacksJob names a job that ended between two times and whose end no run has; "": none. slurmctld sends ends in
// the order of its messages, but starts every 5 s beside them. Until its start has come, slurmdbd does not know
// the account of a job, and sacct does not list it. An id may have earlier runs.
func lacksJob(runs []cli.Run, known []cli.EndedJob, from, to int64) string {
	last := map[int]int64{}
	for _, r := range runs {
		last[r.ID] = max(last[r.ID], r.Ended)
	}
	for _, j := range known {
		if j.Ended >= from && j.Ended <= to && last[j.ID] < j.Ended {
			return fmt.Sprintf("accounting lacks the end of job %d", j.ID)
		}
	}
	return ""
}

// withoutUnread leaves out the runs that could not be read fully, and what slurmctld says of their jobs. Such a run cannot
// be billed, and must not stop the usage of other jobs.
func (c jobRecords) withoutUnread(runs []cli.Run, known []cli.EndedJob) ([]cli.Run, []cli.EndedJob) {
	unread := map[int]bool{}
	runs = slices.DeleteFunc(runs, func(r cli.Run) bool {
		if len(r.Unread) > 0 && !unread[r.ID] {
			c.log.Warn("usage of a job not recorded: its accounting cannot be read", "host", c.host.Name(), "job", r.ID, "user", r.User,
				"account", r.Account, "unread", strings.Join(r.Unread, ", "))
			unread[r.ID] = true
		}
		return len(r.Unread) > 0
	})
	return runs, slices.DeleteFunc(known, func(j cli.EndedJob) bool { return unread[j.ID] })
}

// Cluster implements runtimes.Meter.
func (r *Runtime) Cluster(key schema.Key) string { return cluster.Name(key) }

// ReadUsage implements runtimes.Meter. It reads nothing while accounting lacks starts and ends of jobs. sacct leaves out a
// suspension only once it has ended: until then, a job that is suspended counts as running.
func (r *Runtime) ReadUsage(
	ctx context.Context, s runtimes.Scope, stamp runtimes.Stamp, of runtimes.UsageRange,
) (runtimes.UsageReading, error) {
	c, err := r.meter(ctx, s, stamp)
	if err != nil {
		return runtimes.UsageReading{}, err
	}
	return c.readUsage(ctx, of)
}

func (c jobRecords) readUsage(ctx context.Context, of runtimes.UsageRange) (runtimes.UsageReading, error) {
	now, err := ask(ctx, c.control, cli.Clock())
	if err != nil {
		return runtimes.UsageReading{}, err
	}
	at := now.Add(-time.Second) // sacct counts on after an end that has not passed when it starts
	unsent, err := ask(ctx, c.control, cli.Unsent())
	if err != nil {
		return runtimes.UsageReading{}, err
	}
	if unsent > 0 {
		return runtimes.UsageReading{}, waiting("%s", lacksMessages(unsent))
	}
	known, err := c.endedJobs(ctx, "")
	if err != nil {
		return runtimes.UsageReading{}, err
	}
	// A clock that was ahead for a while leaves records with ends that are yet to come.
	from := max(min(of.Since.Unix(), at.Unix()), earliest)
	runs, err := c.runs(ctx, "", from, at.Add(time.Hour).Unix())
	if err != nil {
		return runtimes.UsageReading{}, err
	}
	runs, known = c.withoutUnread(runs, known)
	if lacks := lacksJob(runs, known, from, at.Unix()); lacks != "" {
		return runtimes.UsageReading{}, waiting("%s", lacks)
	}
	until := at.UTC()
	if !of.ToNow {
		until = until.Truncate(24 * time.Hour)
	}
	jobs, err := c.used(ctx, runs, of.Since.UTC().Truncate(24*time.Hour), until)
	return runtimes.UsageReading{Jobs: jobs, At: at}, err
}

// AccountedDay implements runtimes.Meter. slurmdbd adds hours up in their order, and a day with its last
// hour. It charges a job that slurmctld has lost until a person or Berth ends it: no day is reported before.
func (r *Runtime) AccountedDay(
	ctx context.Context, s runtimes.Scope, stamp runtimes.Stamp, day time.Time,
) (report usage.DayReport, ok bool, err error) {
	c, err := r.meter(ctx, s, stamp)
	if err != nil {
		return report, false, err
	}
	end := usage.NextDay(day)
	last, err := ask(ctx, c.control, cli.UtilizedHours(c.stack.Cluster, end.Add(-time.Hour), end))
	if err != nil || len(last) == 0 {
		return report, false, err
	}
	lost, err := c.runaways(ctx)
	if err != nil {
		return report, false, err
	}
	if len(lost) > 0 {
		return report, false, waiting("accounting has job %d as active, which slurmctld does not know; end it with sacctmgr show runaway",
			lost[0])
	}
	all, err := ask(ctx, c.control, cli.UtilizedHours(c.stack.Cluster, day, end))
	if err != nil {
		return report, false, err
	}
	report.Unused = unused(all)
	charged, err := ask(ctx, c.control, cli.AccountedHours(c.stack.Cluster, day, end))
	if err != nil {
		return report, false, err
	}
	for _, row := range charged {
		if row[0] == accounting.Root && row[1] == "" {
			report.CPUs, err = strconv.ParseInt(row[2], 10, 64)
			return report, err == nil, err
		}
	}
	return report, true, nil // no account was charged
}

// unused returns what no job had. A cluster without GPUs has no time of GPUs.
func unused(all []cli.Utilization) *usage.Unused {
	u := &usage.Unused{}
	for _, a := range all {
		switch a.TRES {
		case "cpu":
			u.IdleCPUs, u.DownCPUs = a.Idle(), a.Down
		case "gres/gpu":
			u.IdleGPUs, u.DownGPUs = a.Idle(), a.Down
		}
	}
	return u
}

// meter returns the accounting of a unit that runs.
func (r *Runtime) meter(ctx context.Context, s runtimes.Scope, stamp runtimes.Stamp) (jobRecords, error) {
	v, err := r.find(ctx, s)
	if err != nil {
		return jobRecords{}, err
	}
	if !v.ctl.rec.Complete || v.ctl.rec.Deleting || v.ctl.rec.Stopped {
		return jobRecords{}, waiting("%s does not run", s.Key)
	}
	c := jobRecords{v.ctl}
	c.stamp = stamp
	return c, nil
}

// used returns by day what runs used since a midnight. Runs that have not ended count until a time; a zero time
// leaves them out. A job that never ran has used nothing.
func (c jobRecords) used(ctx context.Context, runs []cli.Run, since, until time.Time) (jobs []usage.Job, err error) {
	of := elapsed{c, suspects(runs, since, until), map[int64]map[usage.Run]int64{}, until}
	seen := map[usage.Run]bool{} // a run may be in two answers
	for _, r := range runs {
		j := c.jobOf(r)
		if r.Started == 0 || seen[j.Run()] {
			continue
		}
		seen[j.Run()] = true
		if r.Ended == 0 {
			if j.Ended = until; !j.Ended.After(j.Started) || !j.Ended.After(since) {
				continue
			}
			j.State = ""
			j.Suspended = math.MaxInt64 // unknown: sacct counts until now
		} else {
			j.Suspended = r.Ended - r.Started - r.Elapsed
		}
		parts, err := of.parts(ctx, j, since, r.Ended == 0)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(parts, func(p usage.Job) bool { return p.Ended.After(since) || p.StartDay() == since.Format(time.DateOnly) })
		if i >= 0 {
			jobs = append(jobs, parts[i:]...)
		}
	}
	return jobs, nil
}

// jobOf returns a run as a job of usage, without the time for which it was suspended.
func (c jobRecords) jobOf(r cli.Run) usage.Job {
	j := usage.Job{
		Cluster: r.Cluster, JobID: r.ID, Submitted: unixTime(r.Submitted), Started: unixTime(r.Started), Ended: unixTime(r.Ended),
		State: r.State, User: r.User, Place: usage.Place{Partition: r.Partition, QoS: r.QoS},
		Resources: usage.Resources{CPUs: r.CPUs, GPUs: r.GPUs, MemoryMiB: r.MemoryMiB, Billing: r.Billing},
	}
	if c.rec.isShared() && strings.Contains(r.Account, ".") { // a project's: no other one has users
		j.ProjectID = r.Account
	}
	if j.GPUs > 0 {
		j.GPUType = cmp.Or(c.gpuType(r.Nodes), r.GPUType)
	}
	return j
}

// parts returns the parts of a job by day. runs: it has not ended, and its days before since are not needed.
func (e elapsed) parts(ctx context.Context, j usage.Job, since time.Time, runs bool) ([]usage.Job, error) {
	parts, err := usage.Days(j, func(from, to time.Time) (int64, error) {
		if runs && !to.After(since) {
			return 0, nil
		}
		return e.suspended(ctx, j.Run(), from, to)
	})
	if err != nil || !runs {
		return parts, err
	}
	last := &parts[len(parts)-1]
	last.Suspended, err = e.suspended(ctx, j.Run(), last.Started, last.Ended)
	return parts, err
}

// suspects returns the ids of runs by the begins of the days on which they may have been suspended, other than
// those of one day.
func suspects(runs []cli.Run, since, until time.Time) map[int64][]int {
	const day = 24 * 3600
	ids := map[int64][]int{}
	for _, r := range runs {
		first, end := r.Started-r.Started%day, r.Ended
		if r.Ended == 0 {
			first, end = max(first, since.Unix()), until.Unix()
		} else if r.Ended-r.Started == r.Elapsed || r.Ended <= first+day {
			continue
		}
		for ; r.Started > 0 && first < end; first += day {
			ids[first] = append(ids[first], r.ID)
		}
	}
	return ids
}

// elapsed has what accounting counts of runs on days, for those with a suspension: sacct is asked once a
// day, however many of them there are.
type elapsed struct {
	jobRecords
	ids  map[int64][]int               // of suspects
	days map[int64]map[usage.Run]int64 // by the begin of the time that was asked for
	// until is the end of runs that have not ended: sacct counts them to the end of the time that is asked for.
	until time.Time
}

// suspended returns for how many seconds a run was suspended between two times of one day.
func (e elapsed) suspended(ctx context.Context, run usage.Run, from, to time.Time) (int64, error) {
	day := from.Truncate(24 * time.Hour).Unix()
	if e.days[day] == nil {
		e.days[day] = map[usage.Run]int64{}
		end := day + 24*3600
		if until := e.until.Unix(); day < until {
			end = min(end, until)
		}
		if err := e.read(ctx, e.days[day], cli.RunIDs(e.ids[day]), day, end); err != nil {
			return 0, err
		}
	}
	seconds, ok := e.days[day][run]
	if !ok {
		return 0, fmt.Errorf("host %s: sacct has job %d no longer", e.host.Name(), run.JobID)
	}
	return int64(to.Sub(from)/time.Second) - seconds, nil
}

// read adds what runs with some ids used between two times, in parts as runs.
func (e elapsed) read(ctx context.Context, into map[usage.Run]int64, ids cli.RunIDs, from, to int64) error {
	all, err := e.ask(ctx, cli.RunsWithin(ids, time.Unix(from, 0), time.Unix(to, 0)))
	if runtimes.IsTooLong(err) && to-from > 1 {
		for begin, end := range eighths(from, to) {
			if err := e.read(ctx, into, ids, begin, end); err != nil {
				return err
			}
		}
		return nil
	}
	for _, r := range all {
		if r.Started < to { // sacct also lists those that only wait by then
			into[usage.Run{Cluster: r.Cluster, JobID: r.ID, Submitted: r.Submitted}] += r.Elapsed
		}
	}
	return err
}

// gpuType returns the type of the GPUs of nodes, if all of them have the same.
func (c jobRecords) gpuType(nodes []string) string {
	var types []string
	for _, m := range c.rec.Unit.Members {
		if slices.Contains(nodes, m.Node) {
			for _, g := range m.GPUs {
				types = append(types, g.Type)
			}
		}
	}
	slices.Sort(types)
	if types = slices.Compact(types); len(types) == 1 {
		return types[0]
	}
	return ""
}

func unixTime(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// The first part of a time that runs asks for, and below how many runs of an answer the next part is twice
// as long. A host prints some 50,000 at once.
const (
	firstPart = 50 * 3600
	fewRuns   = 12_000
)

// runs asks sacct for the runs between two times, the last ones first, in parts that a host prints at once: a
// call that prints too much costs as much as one that does not. A run may be in two parts.
func (c jobRecords) runs(ctx context.Context, account string, from, to int64) (all []cli.Run, err error) {
	for length := int64(firstPart); to > from; {
		begin := max(from, to-length)
		part, err := c.ask(ctx, cli.Runs(account, time.Unix(begin, 0), time.Unix(to, 0)))
		switch {
		case runtimes.IsTooLong(err) && to-begin > 1:
			length = max((to-begin)/8, 1)
			continue
		case err != nil:
			return nil, err
		case len(part) < fewRuns:
			length *= 2
		}
		all, to = append(all, part...), begin
	}
	return all, nil
}

// ask asks sacct, which may take as long as a change of the database.
func (c jobRecords) ask(ctx context.Context, q cli.Query[[]cli.Run]) ([]cli.Run, error) {
	op := queryOp(c.control, q)
	op.Run.TimeoutMS = int(c.env.timeouts.Ready.Milliseconds())
	res, err := c.do(ctx, op)
	if err != nil {
		return nil, err
	}
	return answer(c.site, q, res[0])
}

// eighths yields the begins and ends of at most 8 equal parts of a time: a call that prints too much costs
// as much as one that does not.
func eighths(from, to int64) iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		step := (to - from + 7) / 8
		for begin := from; begin < to; begin += step {
			if !yield(begin, min(begin+step, to)) {
				return
			}
		}
	}
}
