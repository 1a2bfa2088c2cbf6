package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// answers are those of testdata for a release, by name.
func answers(t *testing.T, series string) map[string]cli.Answer {
	t.Helper()
	a, err := txtar.ParseFile("testdata/" + series + ".txtar")
	require.NoError(t, err)
	all := map[string]cli.Answer{}
	for _, f := range a.Files {
		name, exit, ok := strings.Cut(f.Name, " exit ")
		require.True(t, ok, f.Name)
		status, err := strconv.Atoi(exit)
		require.NoError(t, err)
		all[name] = cli.Answer{Exit: status, Stdout: f.Data}
	}
	return all
}

// eachRelease runs a test for every release that Berth runs.
func eachRelease(t *testing.T, f func(t *testing.T, tools *cli.Tools, said map[string]cli.Answer)) {
	for _, r := range cli.Releases() {
		if r.Tools != nil {
			t.Run(r.Series, func(t *testing.T) { f(t, r.Tools, answers(t, r.Series)) })
		}
	}
}

// The recorded cluster is the same on all releases, so the typed answers are too.
func TestRecordedAnswersOfAllReleases(t *testing.T) {
	eachRelease(t, func(t *testing.T, tools *cli.Tools, said map[string]cli.Answer) {
		version, err := cli.Installed("slurmctld").Decode(said["version"])
		require.NoError(t, err)
		same, err := version.Tools()
		require.NoError(t, err)
		require.Same(t, tools, same)

		nodes, err := tools.Nodes.Decode(said["nodes"])
		require.NoError(t, err)
		for i := range nodes {
			require.Empty(t, slices.DeleteFunc(slices.Clone(nodes[i].Flags), func(f string) bool { return f == "DRAIN" }))
		}
		require.Equal(t, "root", nodes[1].ReasonBy)
		require.Positive(t, nodes[1].ReasonAt)
		for i := range nodes {
			nodes[i].ReasonBy, nodes[i].ReasonAt = "", 0
		}
		require.Equal(t, []cli.Node{
			{Name: "w1", State: "mixed", Flags: nodes[0].Flags, Gres: "gpu:a100:2", Features: []string{"gpu", "red"},
				Partitions: []string{"main", "quick"}, Weight: 1, CPUs: 4, AllocCPUs: 1, Memory: 1000, Version: string(version),
				Booted: 1795353686, Address: "10.9.9.9"},
			{Name: "w2", State: "idle", Flags: []string{"DRAIN"}, NodeReason: cli.NodeReason{Reason: "bad DIMM = x"},
				Features: nodes[1].Features, Partitions: nodes[1].Partitions, Weight: 1, CPUs: 2, Memory: 500, Version: string(version),
				Booted: 1795353686, Address: "10.9.9.9"},
			{Name: "w3", State: "unknown", Flags: nodes[2].Flags, Features: nodes[2].Features, Partitions: []string{"main"}, Weight: 1,
				CPUs: 2, Memory: 500, Address: "10.9.9.9"},
		}, nodes)
		require.ElementsMatch(t, []string{"main", "quick", "shut"}, nodes[1].Partitions)
		require.True(t, nodes[0].Registered())
		require.False(t, nodes[2].Registered())

		queue, err := cli.Queue().Decode(said["queue"])
		require.NoError(t, err)
		require.Equal(t, []cli.Queued{
			{"1", []string{"1"}, "R", 2001, []string{"main"}}, {"2", []string{"2"}, "PD", 2001, []string{"quick"}},
			{"3", []string{"3"}, "PD", 2001, []string{"quick", "main"}},
		}, queue)
		require.True(t, queue[1].Pending())
		queue, err = cli.Queue().Decode(said["queue of w3"])
		require.NoError(t, err)
		require.Empty(t, queue)

		jobs, err := cli.Snapshot().Decode(said["snapshot"])
		require.NoError(t, err)
		require.Equal(t, []cli.QueuedJob{
			{ID: "1", Raw: "1", Tasks: 1, State: "R", User: "ada", Account: "members", QoS: "normal", Partitions: []string{"quick"},
				Nodes: []string{"gpu-1", "gpu-2"}, Started: 1795395501, Minutes: 60,
				Asks: cli.Asked{GPUs: 2, CPUs: 2, Nodes: 2, Each: cli.EachNode{CPUs: 1, MemoryMiB: 2000, GPUs: 1}}},
			{ID: "4", Raw: "4", Tasks: 1, State: "PD", User: "bob", Account: "members", QoS: "normal",
				Partitions: []string{"main", "quick"}, Minutes: 30, Reason: "Resources",
				Asks: cli.Asked{CPUs: 1, Nodes: 1, Each: cli.EachNode{CPUs: 1, MemoryMiB: 3000}}},
		}, jobs)

		partitions, err := cli.Partitions().Decode(said["partitions"])
		require.NoError(t, err)
		var read []string
		for _, p := range partitions {
			read = append(read, fmt.Sprintf("%s %s %v %s", p.Name, p.State, p.Nodes, p.Values["MaxTime"]))
		}
		require.Equal(t, []string{"main UP [w1 w2 w3] 01:00:00", "quick UP [w1 w2] 00:30:00", "shut DOWN [w2] UNLIMITED"}, read)

		partitions, err = cli.Partitions().Decode(said["no partitions"])
		require.NoError(t, err)
		require.Empty(t, partitions)

		config, err := cli.ShowConfig().Decode(said["config"])
		require.NoError(t, err)
		require.Equal(t, cli.Config{Matches: true, Version: string(version), NextJob: 5}, config)

		up, err := cli.Ping().Decode(said["ping"])
		require.NoError(t, err)
		require.True(t, up)
		up, err = cli.Ping().Decode(said["ping of a stopped slurmctld"])
		require.NoError(t, err)
		require.False(t, up)

		associations, err := cli.Associations().Decode(said["associations"])
		require.NoError(t, err)
		require.Equal(t, []cli.Association{{Account: "root"}, {"root", "root"}, {Account: "members"}, {"members", "anna"}}, associations)
	})
}

func TestRecordedAccounting(t *testing.T) {
	eachRelease(t, func(t *testing.T, tools *cli.Tools, said map[string]cli.Answer) {
		accounted, err := tools.Accounting.Decode(said["accounting of an unknown job"])
		require.NoError(t, err)
		require.Empty(t, accounted)
		accounted, err = tools.Accounting.Decode(said["accounting"])
		require.NoError(t, err)
		i := slices.IndexFunc(accounted, func(j cli.Accounted) bool { return j.ID == 4 })
		require.Positive(t, accounted[i].Submitted)
		accounted[i].Submitted = 0
		require.Equal(t, cli.Accounted{ID: 4, State: "COMPLETED", Reason: "None", Nodes: "w1"}, accounted[i])
	})
}

// The runs of jobs look the same on all releases but for their times. A run that waits has none.
func TestRecordedRuns(t *testing.T) {
	eachRelease(t, func(t *testing.T, _ *cli.Tools, said map[string]cli.Answer) {
		q := cli.Runs("physics.ligo", time.Unix(1577836800, 0), time.Unix(1795478900, 0))
		require.Equal(t, []string{"--starttime=uts1577836800", "--endtime=uts1795478900", "--accounts=physics.ligo"},
			q.Args[len(q.Args)-3:])
		runs, err := q.Decode(said["runs"])
		require.NoError(t, err)
		submitted, started, ended := runs[0].Submitted, runs[0].Started, runs[2].Ended
		require.Greater(t, submitted, int64(1795478000))
		given := cli.TRES{CPUs: 2, GPUs: 1, MemoryMiB: 64}
		run := func(i, id int, account, user, state string, given cli.TRES) cli.Run {
			given.Billing = runs[i].Billing
			r := cli.Run{Cluster: "rec", ID: id, Account: account, User: user, State: state, Partition: "main", QoS: "normal",
				Submitted: submitted}
			if r.TRES = given; state != "PENDING" {
				r.Started, r.Nodes = started, []string{"w1"}
			}
			return r
		}
		want := []cli.Run{
			run(0, 1, "physics.ligo", "bob", "RUNNING", given), run(1, 2, "physics.ligo", "bob", "PENDING", cli.TRES{}),
			run(2, 3, "physics.lhc", "alice", "COMPLETED", cli.TRES{CPUs: 1, MemoryMiB: 2000}),
			run(3, 4, "physics.ligo", "bob", "CANCELLED", given),
		}
		want[0].Elapsed = 1
		want[2].Started, want[2].Ended = ended, ended
		want[3].Ended, want[3].Elapsed = ended, ended-started
		require.Equal(t, want, runs)
		heading, _, _ := strings.Cut(string(said["runs"].Stdout), "\n")
		for _, wrong := range []string{"rec|x|1|1|1|COMPLETED|a|b|cpu=1|1|w|p|q",
			"rec|1|1|1|1|COMPLETED|a|b|c|cpu=1|1|w|p|q", "rec|1|1|1|1|COMPLETED|a|b|cpu=1"} {
			_, err := q.Decode(cli.Answer{Stdout: []byte(heading + "\n" + wrong + "\n")})
			require.Error(t, err, wrong)
		}
		for what, line := range map[string]string{
			"submission": "rec|1|x|1|1|COMPLETED|a|b|cpu=1|1|w|p|q", "resources": "rec|1|1|1|1|COMPLETED|a|b|mem=1.5X|1|w|p|q",
			"elapsed time": "rec|1|1|1|1|COMPLETED|a|b|cpu=1|x|w|p|q",
			"nodes":        "rec|1|1|1|1|COMPLETED|a|b|cpu=1|1|w[|p|q",
			"end":          "rec|1|1|1|soon|COMPLETED|a|b|cpu=1|1|w|p|q",
		} {
			runs, err := q.Decode(cli.Answer{Stdout: []byte(heading + "\n" + line + "\nrec|2|1|1|1|COMPLETED|a|b|cpu=1|1|w|p|Unknown\n")})
			require.NoError(t, err, line)
			require.Len(t, runs, 2)
			require.Equal(t, []string{"p", "q", "p", ""}, []string{runs[0].Partition, runs[0].QoS, runs[1].Partition, runs[1].QoS})
			require.Equal(t, []string{what}, runs[0].Unread)
			require.Empty(t, runs[1].Unread, "it hides no other run")
		}
	})
}

// The report of the time of CPUs and GPUs as 22.05 prints it. Planned down time is down, and time that was planned
// for a job that waited is idle.
func TestUtilization(t *testing.T) {
	day := time.Date(2026, 10, 2, 0, 0, 0, 0, time.UTC)
	q := cli.UtilizedHours("c", day, day.Add(24*time.Hour))
	require.Equal(t, "--noheader --parsable2 -t Seconds -T cpu,gres/gpu cluster Utilization clusters=c "+
		"format=TresName,Reported,Allocated,Down,PlannedDown start=uts1790899200 end=uts1790985600", strings.Join(q.Args, " "))
	all, err := q.Decode(cli.Answer{Stdout: []byte("cpu|345600|300000|7200|600\ngres/gpu|172800|180000|0|0\n")})
	require.NoError(t, err)
	require.Equal(t, []cli.Utilization{{TRES: "cpu", Reported: 345600, Allocated: 300000, Down: 7800},
		{TRES: "gres/gpu", Reported: 172800, Allocated: 180000}}, all)
	require.Equal(t, []int64{37800, 0}, []int64{all[0].Idle(), all[1].Idle()})
	for _, wrong := range []string{"cpu|1|2|3\n", "cpu|1|2|3|x\n", "cpu|1|2|3|4"} {
		_, err := q.Decode(cli.Answer{Stdout: []byte(wrong)})
		require.Error(t, err, wrong)
	}
	all, err = q.Decode(cli.Answer{})
	require.NoError(t, err)
	require.Empty(t, all, "not added up")
}

// A job that never ran had no nodes, and one that waits again has no end.
func TestJobsThatHaveEnded(t *testing.T) {
	q := cli.EndedJobs("physics.lhc")
	const heading = "JOBID|END_TIME|NODELIST|\n"
	all, err := q.Decode(cli.Answer{Stdout: []byte(heading + "7|1793527100|gpu-[1-2]|\n8|1793527000||\n9|N/A|gpu-1|\n")})
	require.NoError(t, err)
	require.Equal(t, []cli.EndedJob{{ID: 7, Ended: 1793527100}}, all)
	for _, wrong := range []string{"", heading + "7|1793527100|gpu-1\n", heading + "7|soon|gpu-1|\n", heading + "7_1|1793527100|gpu-1|\n",
		heading + "7|1793527100|gpu-1|"} {
		_, err := q.Decode(cli.Answer{Stdout: []byte(wrong)})
		require.Error(t, err, wrong)
	}
}

// slurmctld says how many messages it has for slurmdbd, apart from those for nodes.
func TestUnsentMessages(t *testing.T) {
	const said = "Server thread count:  1\nAgent queue size:     3\nAgent count:          0\nAgent thread count:   0\nDBD Agent queue " +
		"size: 12\n"
	n, err := cli.Unsent().Decode(cli.Answer{Stdout: []byte(said)})
	require.NoError(t, err)
	require.Equal(t, 12, n)
	for _, wrong := range []string{"", "Agent queue size: 0\n", "DBD Agent queue size: x\n"} {
		_, err := cli.Unsent().Decode(cli.Answer{Stdout: []byte(wrong)})
		require.Error(t, err)
	}
}

func TestRecordedTables(t *testing.T) {
	columns := map[string][]string{
		"list user": {"user"}, "list none": {"user"}, "list users": {"user", "defaultaccount", "adminlevel"},
		"list assoc": {"cluster", "account", "parentname", "user", "partition", "fairshare", "qos", "defaultqos", "grpjobs",
			"grpsubmitjobs", "grptres", "grptresmins", "grpwall",
			"maxjobs", "maxsubmitjobs", "maxtresperjob", "maxwalldurationperjob", "priority"},
		"list qos": {"name", "priority", "flags", "grptres", "grpjobs", "grpsubmitjobs", "maxtresperjob", "maxtresperuser",
			"maxtresperaccount",
			"maxjobsperuser", "maxsubmitjobsperuser", "maxwall", "preempt", "preemptmode", "usagefactor"},
	}
	eachRelease(t, func(t *testing.T, _ *cli.Tools, said map[string]cli.Answer) {
		for name, names := range columns {
			q := cli.List("assoc", nil, names...)
			rows, err := q.Decode(said[name])
			require.NoError(t, err, name)
			require.Equal(t, name == "list none", len(rows) == 0, name)
			for _, wrong := range []string{"", "User", "sacctmgr: error\n", strings.Replace(string(said[name].Stdout), "\n", "|Name\n", 1),
				string(said[name].Stdout) + "a|b|c|d\n"} {
				if wrong != "User" || len(names) > 1 {
					_, err = q.Decode(cli.Answer{Stdout: []byte(wrong)})
					require.Error(t, err, "%s %q", name, wrong)
				}
			}
		}
	})
	require.Equal(t, strings.Fields("-i -P list assoc cluster=c account=members format=user"),
		cli.List("assoc", []string{"cluster=c", "account=members"}, "user").Args)
}

// fails is a decoder of any query.
func fails[T any](q cli.Query[T]) func(cli.Answer) error {
	return func(a cli.Answer) error {
		_, err := q.Decode(a)
		return err
	}
}

func decoders(tools *cli.Tools) map[string]func(cli.Answer) error {
	return map[string]func(cli.Answer) error{
		"nodes": fails(tools.Nodes), "queue": fails(cli.Queue()), "snapshot": fails(cli.Snapshot()), "partitions": fails(cli.Partitions()),
		"config": fails(cli.ShowConfig()), "ping": fails(cli.Ping()), "associations": fails(cli.Associations()),
		"accounting": fails(tools.Accounting), "runs": fails(cli.Runs("", time.Unix(0, 0), time.Unix(0, 0))),
	}
}

// No answer that a tool gives instead of the asked one is an empty list: a version
// that lists under another key, text instead of JSON, nothing at all, an error with
// exit status 0, a failure.
func TestAnswerWithoutItsKeyIsAnError(t *testing.T) {
	eachRelease(t, func(t *testing.T, tools *cli.Tools, said map[string]cli.Answer) {
		for name, decode := range decoders(tools) {
			require.NoError(t, decode(said[name]), name)
			for _, text := range []string{
				"", "\n", "{}", "null", "[]", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
				`{"meta":{},"errors":[]}`, `{"errors":[],"nodes":null,"jobs":null}`, `{"nodes":[],"jobs":[]}`,
				`{"errors":null,"nodes":{},"jobs":{}}`,
				`{"errors":[{"error":"no"}],"nodes":[],"jobs":[]}`, `{"errors":[],"nodes":[{}],"jobs":[{}]}`,
				`{"errors":[],"nodes":[null],"jobs":[null]}`,
				`{"errors":[],"sinfo":[{"node":{"state":["IDLE"]}}],"Nodes":[],"Jobs":[]}`,
			} {
				require.Error(t, decode(cli.Answer{Stdout: []byte(text)}), "%s: %q", name, text)
			}
			require.ErrorContains(t, decode(cli.Answer{Exit: 3, Stdout: said[name].Stdout, Stderr: []byte("why")}), "why", name)
			require.Error(t, decode(cli.Answer{Stdout: said[name].Stdout[:len(said[name].Stdout)-2]}), "%s: cut", name)
		}
	})
}

// D6: Slurm 23.02 and later answer `sinfo --json` without nodes, which was read as no
// nodes.
func TestShapeOfAnotherReleaseIsAnError(t *testing.T) {
	old, new := answers(t, "22.05"), answers(t, "24.11")
	for _, r := range cli.Releases() {
		if r.Tools == nil {
			continue
		}
		other := new
		if r.Tools.Nodes.Program != "sinfo" {
			other = old
		}
		for _, name := range []string{"nodes", "sinfo", "accounting"} {
			if a, ok := other[name]; ok {
				require.Error(t, decoders(
					r.Tools,
				)[map[string]string{"sinfo": "nodes"}[name]+map[bool]string{true: name}[name != "sinfo"]](a), "%s %s", r.Series, name)
			}
		}
	}
}

// Every field that is read is required in every element, so a release that renames one
// is found.
func TestEveryFieldIsRequired(t *testing.T) {
	fields := map[string][]string{
		"nodes":      {"name", "state", "reason", "gres", "features", "partitions", "cpus", "alloc_cpus", "real_memory"},
		"accounting": {"job_id", "nodes", "state", "comment", "time"},
	}
	eachRelease(t, func(t *testing.T, tools *cli.Tools, said map[string]cli.Answer) {
		for name, all := range fields {
			if name == "nodes" && tools.Nodes.Program == "scontrol" {
				all = append(slices.Clone(all), "version")
			}
			key := strings.Replace(name, "accounting", "jobs", 1)
			for _, field := range all {
				for _, value := range []string{"", "null", "7.5"} {
					var doc map[string]any
					require.NoError(t, json.Unmarshal(said[name].Stdout, &doc))
					element := doc[key].([]any)[0].(map[string]any)
					require.Contains(t, element, field, "%s", name)
					delete(element, field)
					if value != "" {
						element[field] = json.RawMessage(value)
					}
					raw, err := json.Marshal(doc)
					require.NoError(t, err)
					require.Error(t, decoders(tools)[name](cli.Answer{Stdout: raw}), "%s without %s (%s)", name, field, value)
				}
			}
		}
	})
}

func TestUnknownStateIsAnError(t *testing.T) {
	eachRelease(t, func(t *testing.T, tools *cli.Tools, said map[string]cli.Answer) {
		for _, pair := range [][2]string{{`["MIXED"]`, `["RESTING"]`}, {`["MIXED"]`, `["MIXED","IDLE"]`}, {`["MIXED"]`, `[]`},
			{`"state":"mixed"`, `"state":"resting"`}} {
			if changed := bytes.Replace(said["nodes"].Stdout, []byte(pair[0]), []byte(pair[1]), 1); !bytes.Equal(changed,
				said["nodes"].Stdout) {
				require.Error(t, decoders(tools)["nodes"](cli.Answer{Stdout: changed}), pair[1])
			}
		}
	})
}

func TestVersions(t *testing.T) {
	installed := cli.Installed("slurmd")
	require.Equal(t, "slurmd -V", installed.Program+" "+strings.Join(installed.Args, " "))
	for text, want := range map[string]cli.Version{"slurm-wlm 22.05.8\n": "22.05.8", "slurm 26.05.0-0rc1\n": "26.05.0-0rc1",
		"slurm 24.11.5": "24.11.5"} {
		v, err := installed.Decode(cli.Answer{Stdout: []byte(text)})
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
	for _, bad := range []string{"", "22.05.8\n", "slurm\n", "slurm 22.05\n", "slurm-wlm 22.05.8\nmore\n", "bash: slurmd: not found\n"} {
		_, err := installed.Decode(cli.Answer{Stdout: []byte(bad)})
		require.Error(t, err, bad)
	}
	for _, c := range []struct {
		version, declared string
		is                bool
	}{
		{"22.05.8", "22.05.8", true}, {"22.05.8", "22.05", true}, {"22.05.8", "22.05.9", false}, {"22.05.81", "22.05.8", false},
		{"24.11.5", "22.05", false}, {"26.05.0-0rc1", "26.05.0", true},
	} {
		require.Equal(t, c.is, cli.Version(c.version).Is(c.declared), fmt.Sprint(c))
	}
	for _, other := range []cli.Version{"21.08.8", "23.11.4", "25.05.1", "22.050.1", ""} {
		_, err := other.Tools()
		require.ErrorContains(t, err, "Berth runs 22.05, 24.11, 26.05", other)
	}
}

func TestRunaways(t *testing.T) {
	const note = "NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and no end time in the database\n"
	const question = "\nWould you like to fix these runaway jobs?\n\n (You have 30 seconds to decide)\n(N/y): \nChanges Discarded\n"
	q := cli.Runaways("alpha")
	ids, err := q.Decode(cli.Answer{Stdout: []byte(note + "ID\n2\n317\n" + question)})
	require.NoError(t, err)
	require.Equal(t, []int{2, 317}, ids)
	ids, err = q.Decode(cli.Answer{Stdout: []byte("Runaway Jobs: No runaway jobs found on cluster alpha\n")})
	require.NoError(t, err)
	require.Empty(t, ids)
	for _, a := range []cli.Answer{
		{}, {Stdout: []byte(note)}, {Stdout: []byte(note + "ID\n2\n317\n")}, {Stdout: []byte(note + "ID\n2|job\n" + question)},
		{Stdout: []byte(note + "2\n" + question)},
		{Stdout: []byte(note + "ID\n2\n" + question), Exit: 1}, {Stdout: []byte("ID\n2\n\n")},
		{Exit: 1, Stderr: []byte("sacctmgr: error: Connection refused")},
	} {
		_, err := q.Decode(a)
		require.Error(t, err, "%s", a.Stdout)
	}
}

func TestAgentsAndHardware(t *testing.T) {
	ok := func(text string) cli.Answer { return cli.Answer{Stdout: []byte(text)} }
	n, err := cli.Agents().Decode(ok("Server thread count:  3\nAgent queue size:     7\nAgent count:          2\nAgent thread count:   " +
		"4\n"))
	require.NoError(t, err)
	require.Equal(t, 9, n)
	r, err := cli.Hardware().Decode(ok("NodeName=w1 CPUs=8 Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=1 " +
		"RealMemory=24105\nUpTime=0-01:00:00\n"))
	require.NoError(t, err)
	require.Equal(t, cli.Resources{CPUs: 8, Memory: 24105, Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 1}, r)
	r, err = cli.Hardware().Decode(ok("NodeName=w1 CPUs=32 Boards=2 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=2 " +
		"RealMemory=24105\n"))
	require.NoError(t, err)
	require.Equal(t, cli.Resources{CPUs: 32, Memory: 24105, Sockets: 2, CoresPerSocket: 8, ThreadsPerCore: 2}, r)
	r, err = cli.Hardware().Decode(ok("NodeName=w1 CPUs=31 Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=2 " +
		"RealMemory=24105\n"))
	require.NoError(t, err)
	require.Equal(t, cli.Resources{CPUs: 31, Memory: 24105}, r, "a CPU is off")
	for _, bad := range []string{"", "Agent queue size: 0\n", "Agent queue size: 0\nAgent count: x\n",
		"Agent queue size: 0\nAgent count: 0"} {
		_, err := cli.Agents().Decode(ok(bad))
		require.Error(t, err, bad)
	}
	for _, bad := range []string{"", "NodeName=w1 CPUs=8\n", "CPUs=x RealMemory=1\n", "CPUs=8 RealMemory=1"} {
		_, err := cli.Hardware().Decode(ok(bad))
		require.Error(t, err, bad)
	}
}

// The tasks of an array that wait together share an id, and have one for themselves.
func TestWaitingTasksOfAnArray(t *testing.T) {
	queue, err := cli.Queue().Decode(cli.Answer{Stdout: []byte("JOBID ST UID PARTITION\n12_[3-9%2] PD 2001 main\n12_1 R 2001 " +
		"main\n13_[1,3,5,...] PD 2001 main\n14+1 PD 2001 main\n15_[1-9:2] PD 2001 main\n")})
	require.NoError(t, err)
	var ids []string
	for _, q := range queue {
		ids = append(ids, q.ID+" "+strings.Join(q.Tasks, " "))
	}
	require.Equal(t, []string{"12 12_[3-9]", "12_1 12_1", "13 ", "14+1 14+1", "15 15_[1,3,5,7,9]"}, ids)
}

// heading is the first line of a snapshot, and asksLittle the end of each line of a job that asks for a CPU and 1 MiB on each node.
const (
	heading    = "JOBID|JOBID|ST|USER|ACCOUNT|QOS|PARTITION|NODELIST|TRES_ALLOC|START_TIME|TIME_LIMIT|REQ_NODES|REASON|MIN_CPUS|MIN_MEMORY|TRES_PER_NODE|FEATURES|\n"
	asksLittle = "None|1|1M|N/A|(null)|\n"
)

var little = cli.EachNode{CPUs: 1, MemoryMiB: 1}

// A snapshot has the time limit of each job in minutes.
func TestSnapshotHasTimeLimits(t *testing.T) {
	decode := func(limit string) ([]cli.QueuedJob, error) {
		return cli.Snapshot().Decode(cli.Answer{Stdout: []byte(heading +
			"7|7|PD|ada|physics.lhc|physics.lhc|main||cpu=2,mem=4000M,node=1,billing=2,gres/gpu=3|N/A|" + limit + "||" + asksLittle)})
	}
	for limit, want := range map[string]int{"0:30": 0, "5:00": 5, "30:00": 30, "2:00:00": 120, "1-02:30:00": 1590, "365-00:00:00": 525600,
		"UNLIMITED": 0, "NOT_SET": 0} {
		jobs, err := decode(limit)
		require.NoError(t, err, limit)
		require.Equal(t, []cli.QueuedJob{{ID: "7", Raw: "7", Tasks: 1, State: "PD", User: "ada", Account: "physics.lhc", QoS: "physics.lhc",
			Partitions: []string{"main"}, Minutes: want, Asks: cli.Asked{GPUs: 3, CPUs: 2, Nodes: 1, Each: little}}}, jobs)
	}
	for _, limit := range []string{"", "5", "a:00", "-1:00", "1-00", "999999999999999999999:00", "5:00:00:00"} {
		jobs, err := decode(limit)
		require.NoError(t, err, limit)
		require.True(t, jobs[0].Unread, limit)
	}
}

// A line of squeue is a job, a part of a heterogeneous job, a task of an array, or its tasks that wait together.
func TestSnapshotOfArraysAndParts(t *testing.T) {
	for id, want := range map[string]int{"12": 1, "12_3": 1, "12+1": 1, "5_[1-295:7%3]": 43, "9_[1-4]": 4, "9_[1,3,7-9]": 5,
		"9_[0-99999:2%5]": 50000} {
		jobs, err := cli.Snapshot().Decode(cli.Answer{Stdout: []byte(heading + id +
			"|12|PD|ada|members|normal|main||cpu=2,mem=2000M,node=2,billing=1|N/A|5:00|gpu-[2-3],gpu-1|" + asksLittle)})
		require.NoError(t, err, id)
		require.Equal(t, []cli.QueuedJob{{ID: id, Raw: "12", Tasks: want, State: "PD", User: "ada", Account: "members", QoS: "normal",
			Partitions: []string{"main"}, Minutes: 5,
			Asks: cli.Asked{CPUs: 2, Nodes: 2, Named: []string{"gpu-1", "gpu-2", "gpu-3"}, Each: little}}}, jobs)
	}
	for _, cut := range []string{"5_[1,3,5,...]", "5_[3-1]", "5_[x]"} {
		jobs, err := cli.Snapshot().Decode(cli.Answer{Stdout: []byte(heading + cut + "|5|PD|ada|members|normal|main||cpu=1|N/A|5:00||" +
			asksLittle)})
		require.NoError(t, err, cut)
		require.True(t, jobs[0].Unread, cut)
	}
}

// A job with an unreadable field stays in a snapshot, marked, and does not affect the others. A field that Slurm
// leaves open counts as readable.
func TestUnreadJobsHideNoOthers(t *testing.T) {
	const other = "8|8|R|bob|physics.lhc|normal|main|w2|cpu=1,mem=1G,node=1|1795395501|5:00||" + asksLittle
	want := cli.QueuedJob{ID: "8", Raw: "8", Tasks: 1, State: "R", User: "bob", Account: "physics.lhc", QoS: "normal",
		Partitions: []string{"main"}, Nodes: []string{"w2"}, Minutes: 5, Started: 1795395501,
		Asks: cli.Asked{CPUs: 1, Nodes: 1, Each: little}}
	for line, unread := range map[string]bool{
		"172|172|CG|anna|members|normal|main|w1|cpu=1,mem=1.50T,node=1,billing=1|N/A|30:00||": false, // launch failed, requeued, completing
		"172|172|R|anna|members|normal|main|w[1-|cpu=1|1795395501|30:00||":                    true,
		"172|172|R|anna|members|normal|main|w1|cpu=many|1795395501|30:00||":                   true,
		"172|172|R|anna|members|normal|main|w1|cpu=1|tomorrow|30:00||":                        true,
		"172|172|R|anna|members|normal|main|w1|N/A|1795395501|NOT_SET||":                      false,
	} {
		jobs, err := cli.Snapshot().Decode(cli.Answer{Stdout: []byte(heading + line + asksLittle + other)})
		require.NoError(t, err, line)
		require.Len(t, jobs, 2, line)
		require.Equal(t, unread, jobs[0].Unread, line)
		require.Equal(t, want, jobs[1], line)
	}
}

// A snapshot has the least that each node of a job must have, as two releases print it. Features may have the character that
// separates columns; of alternatives, none is known.
func TestSnapshotHasWhatEachNodeMustHave(t *testing.T) {
	for text, want := range map[string]cli.EachNode{
		"1|2000M|N/A|(null)|":                   {CPUs: 1, MemoryMiB: 2000},
		"2|1G|gres:gpu:2|(null)|":               {CPUs: 2, MemoryMiB: 1024, GPUs: 2},
		"1|0|gres/gpu:a100:4|(null)|":           {CPUs: 1, GPUs: 4, GPUType: "a100"},
		"1|0|gres:gpu:a100|(null)|":             {CPUs: 1, GPUs: 1, GPUType: "a100"},
		"1|0|gres/gpu|(null)|":                  {CPUs: 1, GPUs: 1},
		"1|0|gres/license:3,gres/gpu:2|(null)|": {CPUs: 1, GPUs: 2},
		"1|0|N/A|worker&a100|":                  {CPUs: 1, Features: []string{"a100", "worker"}},
		"1|0|N/A|a100|v100|":                    {CPUs: 1},
		"1|0|N/A|[r1|r2|r3]|":                   {CPUs: 1},
		"1|0|N/A|(a100&ib)|v100|":               {CPUs: 1},
		"1|0|N/A|[r1*2&r2*4]|":                  {CPUs: 1},
		"16|500000M|gres/gpu:h100:8|from_phys.lhc|": {CPUs: 16, MemoryMiB: 500000, GPUs: 8, GPUType: "h100",
			Features: []string{"from_phys.lhc"}},
	} {
		jobs, err := cli.Snapshot().Decode(cli.Answer{Stdout: []byte(heading + "7|7|PD|ada|a|q|main||cpu=1,node=1|N/A|5:00||None|" + text +
			"\n")})
		require.NoError(t, err, text)
		require.False(t, jobs[0].Unread, text)
		require.Equal(t, want, jobs[0].Asks.Each, text)
	}
	for _, text := range []string{"many|0|N/A|(null)|", "1|lots|N/A|(null)|"} {
		jobs, err := cli.Snapshot().Decode(cli.Answer{Stdout: []byte(heading + "7|7|PD|ada|a|q|main||cpu=1,node=1|N/A|5:00||None|" + text +
			"\n")})
		require.NoError(t, err, text)
		require.True(t, jobs[0].Unread, text)
	}
}

// squeue prints memory as slurmctld made it, a status as wait(2) does, and N/A for a time that is not there.
func TestJobsAsSlurmPrintsThem(t *testing.T) {
	row := func(change map[int]string) string {
		v := []string{"205", "RUNNING", "ada", "physics.lhc", "main", "1795395501", "1795395502", "N/A", "5:00", "w1",
			"cpu=1,mem=1G,node=1,billing=5", "0", "None", "n  ", "(null)  ", "205"}
		for i, text := range change {
			v[i] = text
		}
		return strings.Join(v, "§") + "§"
	}
	decode := func(change map[int]string) (first, second cli.Job) {
		jobs, err := cli.QueueJobs("§").Decode(cli.Answer{Stdout: []byte(row(change) + "\n" + row(nil) + "\n")})
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		return jobs[0], jobs[1]
	}
	for given, mib := range map[string]int{"mem=1G": 1024, "mem=1.50T": 1572864, "mem=1000M": 1000, "mem=0": 0, "mem=512K": 1,
		"mem=4Gn": 4096, "N/A": 0, "": 0} {
		j, other := decode(map[int]string{10: given})
		require.Empty(t, j.Unread, given)
		require.Equal(t, mib, j.MemoryMiB, given)
		require.Equal(t, 1024, other.MemoryMiB)
	}
	for status, exit := range map[string]string{"4021": "0:53", "256": "1:0", "0": "0:0", "9": "0:9"} {
		j, _ := decode(map[int]string{11: status})
		require.Equal(t, exit, j.Exit)
	}
	for at, text := range map[int]string{6: "soon", 8: "a while", 9: "w[1-", 10: "mem=much"} {
		j, other := decode(map[int]string{at: text})
		require.Len(t, j.Unread, 1, text)
		require.Equal(t, []string{"205", "RUNNING", "ada"}, []string{j.ID, j.State, j.User})
		require.Empty(t, other.Unread)
	}
	_, err := cli.QueueJobs("§").Decode(cli.Answer{Stdout: []byte(row(map[int]string{0: ""}) + "\n")})
	require.Error(t, err, "nobody knows which job it is")
}

// slurmdbd keeps the options of the command, so it has the output of what Berth submitted with one.
func TestWhereAJobWrote(t *testing.T) {
	const ours = "/run/berth-submit/north:2001:nightly:0123456789abcdef/job.sh"
	for line, want := range map[string]string{
		"/usr/bin/sbatch " + strings.Join(profile.SubmitArgs("--chdir=/w", "--output=slurm-%j.out", ours), " "): "slurm-%j.out",
		"/usr/bin/sbatch " + strings.Join(profile.SubmitArgs("--chdir=/w", ours), " "):                          "",
		"sbatch --job-name=a --output=/etc/x job.sh":                                                            "",
		"sbatch --wrap true --output=/etc/x # " + ours + " --comment=x":                                         "",
	} {
		files, err := cli.AccountedFiles("§").Decode(cli.Answer{Stdout: []byte("12§1795395501§" + line + "§/w§\n")})
		require.NoError(t, err, line)
		require.Equal(t, []cli.JobFiles{{ID: "12", Submitted: 1795395501, Output: want, WorkDir: "/w"}}, files, line)
	}
	files, err := cli.QueueFiles("§").Decode(cli.Answer{Stdout: []byte("12_3§1795395501§/w/%A|%a.out§/w§\n13§1795395501§(null)§/w§\n")})
	require.NoError(t, err)
	require.Equal(t, []string{"/w/%A|%a.out", ""}, []string{files[0].Output, files[1].Output})
	files, err = cli.QueueFiles("§").Decode(cli.Answer{Exit: 1, Stderr: []byte("slurm_load_jobs error: Invalid job id specified")})
	require.NoError(t, err)
	require.Empty(t, files)
}
