package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/runtimes/slurm/profile"
)

// Release is a row of the table: a series of Slurm's releases, such as 22.05.
type Release struct {
	Series string
	// From are the series from which an upgrade reaches this one in one step. An
	// upgrade within a series is always possible, and a downgrade to an
	// earlier series never is (https://slurm.schedmd.com/upgrades.html; window of each release:
	// what slurmctld printed when it refused the state of 22.05 and of 26.05).
	From []string
	// Reexecutes says that a reconfigure restarts slurmctld and each slurmd with the
	// new files (scontrol(1) of 23.11).
	Reexecutes bool
	// RequiresState says that slurmctld does not start a second time without its saved state,
	// which it writes at its end and every few minutes. One that is killed before ends with
	// "No Assoc usage file to recover" at each start (measured on 26.05.5).
	RequiresState bool
	// Tools are nil for a series that Berth does not run: it is only a step of an
	// upgrade between two that Berth runs.
	Tools *Tools
}

// releases is the table, oldest first.
var releases = []Release{
	{Series: "22.05", Tools: tools2205},
	{Series: "23.02", From: []string{"22.05"}},
	{Series: "23.11", From: []string{"22.05", "23.02"}, Reexecutes: true},
	{Series: "24.11", From: []string{"23.02", "23.11"}, Reexecutes: true, Tools: tools2411},
	{Series: "26.05", From: []string{"24.11"}, Reexecutes: true, RequiresState: true, Tools: tools2411},
}

// Releases returns the table, oldest first.
func Releases() []Release { return slices.Clone(releases) }

// Tools are the queries whose call or answer depends on the release.
type Tools struct {
	Nodes      Query[[]Node]
	Accounting Query[[]Accounted]
}

// Queue returns the query for the running and pending jobs, the same on all releases.
// filter are options such as --nodelist=w1. A heading is the key of a list: it also
// stands above an empty one.
func Queue(filter ...string) Query[[]Queued] {
	return query(lines(decodeQueue), "squeue", "--all", profile.QueueFormat).With(filter...)
}

// Snapshot returns the query for the running and pending jobs with all that a plan needs of
// them, the same on all releases. The tasks of an array that wait together are one QueuedJob: squeue
// --array of 22.05 leaves out the last one of a step.
func Snapshot() Query[[]QueuedJob] {
	return query(lines(decodeSnapshot), "squeue", "--all", profile.SnapshotFormat)
}

// Excluded returns the query for the nodes that waiting jobs exclude by name, by QueuedJob.Raw, the same on all releases.
func Excluded() Query[map[string]NodeList] {
	return query(lines(decodeExcluded), "squeue", "--all", profile.QueuedStates, profile.ExcludedFormat)
}

// EndedJobs returns the query for the jobs of an account that ran and have ended, the same on all
// releases: slurmctld has them for MinJobAge. account "" means every one.
func EndedJobs(account string) Query[[]EndedJob] {
	q := query(lines(decodeEnded), "squeue", "--all", "--array", profile.EndedStates, profile.EndedFormat)
	if account != "" {
		q = q.With("--account=" + account)
	}
	return q
}

// Partitions returns the query for the partitions, the same on all releases.
func Partitions() Query[[]Partition] {
	return query(lines(decodePartitions), "scontrol", "show", "partitions")
}

// Reservations returns the query for the reservations, the same on all releases. Its times are
// seconds with SLURM_TIME_FORMAT=%s.
func Reservations() Query[[]Reservation] {
	return query(lines(decodeReservations), "scontrol", "show", "reservations", "--oneliner")
}

// ShowConfig returns the query for slurmctld's configuration, the same on all
// releases: 24.11 answers `scontrol show config --json` with this text as well.
func ShowConfig() Query[Config] { return query(lines(decodeConfig), "scontrol", "show", "config") }

// Runaways returns the query for the jobs that are active in the accounting database and
// unknown to slurmctld. It asks a question at the end: its input has to be "n\n".
func Runaways(cluster string) Query[[]int] {
	return query(lines(decodeRunaways), "sacctmgr", "-P", "show", "runaway", "cluster="+cluster, "format=ID")
}

// Runs returns the query for the runs of jobs in the accounting database that were queued or ran
// between two times, the same on all releases. account "" means every one. No column has a text of
// a user. Its times are seconds with SLURM_TIME_FORMAT=%s.
// ElapsedRaw counts what sreport counts: no time of a suspension (measured on 22.05, 24.11 and 26.05).
func Runs(account string, from, to time.Time) Query[[]Run] {
	q := query(lines(decodeRuns), "sacct", "--allusers", "--duplicates", "--allocations", "--noconvert", "--parsable2",
		"--format="+runColumns, fmt.Sprintf("--starttime=uts%d", from.Unix()), fmt.Sprintf("--endtime=uts%d", to.Unix()))
	if account != "" {
		q = q.With("--accounts=" + account)
	}
	return q
}

// RunIDs are ids of runs.
type RunIDs []int

// RunsWithin is Runs of all accounts, cut to the time between two times: Elapsed is what accounting
// counts between them. It may have only the runs with some ids: of 300 or fewer, slurmdbd finds them faster.
func RunsWithin(ids RunIDs, from, to time.Time) Query[[]Run] {
	q := Runs("", from, to).With("--truncate")
	if len(ids) == 0 || len(ids) > 300 {
		return q
	}
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(id)
	}
	return q.With("--jobs=" + strings.Join(text, ","))
}

// Ping returns the query whether slurmctld answers, the same on all releases.
func Ping() Query[bool] { return Query[bool]{"scontrol", []string{"ping"}, decodePing} }

// Associations returns the query for the associations that slurmctld has, the same on
// all releases. It gets changes a moment after slurmdbd, which List asks.
func Associations() Query[[]Association] {
	return query(lines(decodeAssociations), "scontrol", "show", "assoc_mgr", "flags=assoc")
}

// QoSNames returns the query for the names of the QoS that slurmctld has, the same on all
// releases.
func QoSNames() Query[[]string] {
	return query(lines(decodeQoSNames), "scontrol", "show", "assoc_mgr", "flags=qos")
}

// Agents returns the query for the number of requests that slurmctld is sending to nodes, the
// same on all releases.
func Agents() Query[int] { return query(lines(decodeAgents), "sdiag") }

// Unsent returns the query for the number of messages that slurmctld has for slurmdbd, the same on
// all releases. While there are any, accounting may lack starts and ends of jobs.
func Unsent() Query[int] { return query(lines(decodeUnsent), "sdiag") }

// Clock returns the query for the time of the host of slurmctld, the same on all releases.
func Clock() Query[time.Time] { return query(lines(decodeClock), "sdiag") }

// UtilizedHours returns the query for the time of the CPUs and GPUs of a cluster between two times at
// full hours, the same on all releases. It has no answer for hours that slurmdbd has not added up.
func UtilizedHours(cluster string, from, to time.Time) Query[[]Utilization] {
	return report(decodeUtilization, "Utilization", cluster, utilizationColumns, from, to, "-T", "cpu,gres/gpu")
}

// AccountedHours returns the query for the CPU seconds that the accounts of a cluster are charged with
// between two times at full hours, the same on all releases: the columns Account, Login and Used. The
// row of the account root without a login has those of all.
func AccountedHours(cluster string, from, to time.Time) Query[[][]string] {
	return report(decodeReport(3), "AccountUtilizationByUser", cluster, "Account,Login,Used", from, to)
}

func report[T any](decode func(Answer) (T, error), name, cluster, columns string, from, to time.Time, options ...string) Query[T] {
	args := append([]string{"--noheader", "--parsable2", "-t", "Seconds"}, options...)
	return Query[T]{"sreport", append(args, "cluster", name, "clusters="+cluster, "format="+columns,
		fmt.Sprintf("start=uts%d", from.Unix()), fmt.Sprintf("end=uts%d", to.Unix())), decode}
}

// Hardware returns the query for what slurmd finds on its host, the same on all releases.
func Hardware() Query[Resources] { return query(lines(decodeHardware), "slurmd", "-C") }

// tools2205: only squeue, sinfo and sacct print JSON, in one shape.
var tools2205 = &Tools{
	Nodes:      query(decodeNodes2205, "sinfo", "--json"),
	Accounting: query(decodeAccounting2205, "sacct", "--json", "--allusers"),
}

// parser is the version of the JSON that 24.11 and 26.05 both have, with the same keys.
const parser = "--json=v0.0.42"

var tools2411 = &Tools{
	// sinfo lists groups of equal nodes instead.
	Nodes:      query(decodeNodes2411, "scontrol", "show", "nodes", parser),
	Accounting: query(decodeAccounting2411, "sacct", parser, "--allusers"),
}

// Version is a version of Slurm, such as 22.05.8.
type Version string

// Installed returns the query for the installed version of a program. slurmctld and
// slurmd print it with any configuration, and the tools come in packages of the
// same version. The tools themselves and slurmdbd read their configuration first.
func Installed(program string) Query[Version] {
	return query(decodeVersion, program, "-V")
}

// Debian's packages name themselves slurm-wlm, the RPM of SchedMD slurm.
var versionLine = regexp.MustCompile(`^slurm(?:-wlm)? ([0-9]{2}\.[0-9]{2}\.[0-9]+[-.+~0-9A-Za-z]*)\n?$`)

func decodeVersion(out []byte) (Version, error) {
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%q names no version of Slurm", string(out[:min(len(out), 200)]))
	}
	return Version(m[1]), nil
}

// Is reports whether the version fulfils a declared one: the same version, or one
// of the declared series or release.
func (v Version) Is(declared string) bool {
	return string(v) == declared || strings.HasPrefix(string(v), declared+".") || strings.HasPrefix(string(v), declared+"-")
}

// Reexecutes reports whether a reconfigure restarts the daemons of this version. It is
// false for an unknown version.
func (v Version) Reexecutes() bool {
	return slices.ContainsFunc(releases, func(r Release) bool { return r.Reexecutes && v.Is(r.Series) })
}

// RequiresState reports whether slurmctld of this version does not start a second time without
// its saved state. It is false for an unknown version.
func (v Version) RequiresState() bool {
	return slices.ContainsFunc(releases, func(r Release) bool { return r.RequiresState && v.Is(r.Series) })
}

// Tools returns the queries for the tools of this version. The error says which
// versions Berth runs.
func (v Version) Tools() (*Tools, error) {
	var runs []string
	for _, r := range releases {
		if r.Tools == nil {
			continue
		}
		if v.Is(r.Series) {
			return r.Tools, nil
		}
		runs = append(runs, r.Series)
	}
	return nil, fmt.Errorf("slurm %s is installed, and Berth runs %s: install one of them, and declare it in the AppVersion", v,
		strings.Join(runs, ", "))
}
