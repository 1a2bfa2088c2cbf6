//go:build long

package slurm_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cli"
	"berth/schema"
	"berth/schema/queue"
)

// shape is a kind of job that people submit. Each file of testdata/jobs has one, and README.md there says what its
// fields mean.
type shape struct {
	name string
	api  bool // submitted through the API

	About    string         `json:"about"`
	Script   string         `json:"script"`
	Generate string         `json:"generate"`
	Submit   string         `json:"submit"`
	Request  *queue.Request `json:"request"`
	API      bool           `json:"api"`
	Steps    []shapeStep    `json:"steps"`
	NoPlan   string         `json:"no_plan"`
	NoUsage  string         `json:"no_usage"`
	NoCancel string         `json:"no_cancel"`
	UID      int            `json:"uid"`
	expected
	Since map[string]json.RawMessage `json:"since"`
}

// shapeStep is a command that root runs when a job has a state, on the control host or on the job's node.
type shapeStep struct {
	In string `json:"in"`
	At string `json:"at"`
	Do string `json:"do"`
}

// expected is Slurm's treatment of a shape.
type expected struct {
	State   []string          `json:"state"`
	Reason  string            `json:"reason"`
	Exit    string            `json:"exit"`
	Refused string            `json:"refused"`
	Output  string            `json:"output"`
	Task    string            `json:"task"`
	Plan    map[string]string `json:"plan"`
	// Berth is the error of a submission through the API that Berth itself refuses.
	Berth string `json:"berth"`
}

// readShapes returns the shapes for a release of Slurm, with those that are submitted through the API as well.
func readShapes(t testing.TB, release string) (all []shape) {
	t.Helper()
	files, err := filepath.Glob("testdata/jobs/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		s := shape{name: strings.TrimSuffix(filepath.Base(file), ".yaml"), Submit: "sbatch $script", UID: alice.UID}
		require.NoError(t, yaml.UnmarshalStrict(data, &s), file)
		require.NotEmpty(t, s.About, file)
		require.True(t, len(s.State) > 0 || s.Refused != "" || s.Berth != "", "%s: want state, refused or berth", file)
		since := []string{}
		for from := range s.Since {
			since = append(since, from)
		}
		slices.Sort(since)
		for _, from := range since {
			if release >= from {
				require.NoError(t, json.Unmarshal(s.Since[from], &s.expected), file)
			}
		}
		if s.Request == nil && s.Berth == "" {
			all = append(all, s)
		}
		if s.API || s.Request != nil || s.Berth != "" {
			s.name, s.api = s.name+"-api", true
			all = append(all, s)
		}
	}
	return all
}

// shapeSender submits shapes to a cluster.
type shapeSender struct {
	*company
	unit plan.Unit
	at   runtimes.QueueScope
	dir  string // of the submissions, on each host
}

func newShapeSender(t *testing.T, c *company) *shapeSender {
	t.Helper()
	f := &shapeSender{company: c, dir: "/tmp/jobs-" + rand.Text()[:8]}
	for _, n := range append([]*schema.Node{f.control}, f.workers...) {
		_, err := f.lab.Run(t.Context(), n.Key.Name, "install", "-d", "-m", "1777", "-o", fmt.Sprint(alice.UID), f.dir,
			f.dir+"/with blank", f.dir+"/a|b")
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := f.lab.Run(ending{t}.Context(), n.Key.Name, "rm", "-rf", f.dir)
			require.NoError(t, err)
		})
	}
	return f
}

// accepted is the answer of sbatch.
var accepted = regexp.MustCompile(`(?m)^(?:Submitted batch job )?([0-9]+)(?:;.*| on cluster .*)?$`)

// send submits a shape as alice, and returns the number of its job or why it was refused.
func (f *shapeSender) send(t *testing.T, s shape) (job, refused string) {
	t.Helper()
	key := strings.ToLower(rand.Text()[:12])
	if s.api {
		return f.sendRequest(t, s, key)
	}
	name := s.name + "-" + key[:4] + ".sh"
	put := "printf %s " + base64.StdEncoding.EncodeToString([]byte(s.text())) + " | base64 -d >" + name
	if s.Generate != "" {
		put = "{ " + s.Generate + "\n} >" + name
	}
	interactive := strings.HasPrefix(s.Submit, "srun") || strings.HasPrefix(s.Submit, "salloc")
	line := s.Submit
	if interactive {
		line = "setsid sh -c '" + s.Submit + "' </dev/null >/dev/null 2>&1 &"
	}
	script := "cd " + f.dir + " && " + put + " && chmod 755 " + name + "\nexport script=" + name + " key=" + key + " dir=" +
		f.dir + " HOME=/tmp\n" +
		fmt.Sprintf("setpriv --reuid=%d --regid=%[1]d --clear-groups sh <<'LINE' 2>&1\n%s\nLINE\necho status $?", s.UID, line)
	out := f.onControl(t, f.unit, script)
	if interactive {
		eventually(t, "the job is submitted", func() (bool, string) {
			for row := range strings.Lines(f.tool(t, f.unit, "squeue -h -a -t all -o '%i %k'")) {
				if id, comment, _ := strings.Cut(strings.TrimSpace(row), " "); comment == key {
					job = wholeID(id)
				}
			}
			return job != "", out
		})
		return job, ""
	}
	found := accepted.FindAllStringSubmatch(out, -1)
	if !strings.HasSuffix(out, "status 0\n") || len(found) == 0 {
		return "", out
	}
	return found[len(found)-1][1], ""
}

// text returns the script of a shape.
func (s *shape) text() string {
	if strings.HasPrefix(s.Script, "#!") || strings.HasPrefix(s.Script, "RAW") {
		return strings.TrimPrefix(s.Script, "RAW")
	}
	return "#!/bin/sh\n" + s.Script
}

func (f *shapeSender) sendRequest(t *testing.T, s shape, key string) (job, refused string) {
	t.Helper()
	request := queue.Request{}
	if s.Request != nil {
		request = *s.Request
	}
	request.Script = s.text()
	if s.Generate != "" {
		request.Script = f.onControl(t, f.unit, s.Generate)
	}
	j, err := f.rt.Submit(t.Context(), f.at, queue.Submission{ProjectID: f.at.ProjectID, User: alice, IdempotencyKey: key,
		Request: request})
	if err != nil {
		if !errors.Is(err, queue.ErrDenied) {
			return "", "not denied: " + err.Error()
		}
		return "", err.Error()
	}
	return j.JobID, ""
}

// wholeID returns the number of the job to which a row of squeue belongs.
func wholeID(id string) string {
	if i := strings.IndexAny(id, "_+"); i >= 0 {
		return id[:i]
	}
	return id
}

// endedStates are the states of squeue after the end of a job.
var endedStates = []string{"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
	"PREEMPTED", "TIMEOUT"}

// tasksOf returns the ids for which one of squeue stands: 12_[1-3,7-20:2%4].
func tasksOf(id string) (all []string) {
	array, list, together := strings.Cut(id, "_[")
	if !together {
		return []string{id}
	}
	list, _, _ = strings.Cut(strings.TrimSuffix(list, "]"), "%")
	for part := range strings.SplitSeq(list, ",") {
		span, by, _ := strings.Cut(part, ":")
		first, last, isRange := strings.Cut(span, "-")
		from, _ := strconv.Atoi(first)
		to, step := from, 1
		if isRange {
			to, _ = strconv.Atoi(last)
		}
		if n, err := strconv.Atoi(by); err == nil {
			step = n
		}
		for n := from; n <= to; n += step {
			all = append(all, fmt.Sprintf("%s_%d", array, n))
		}
	}
	return all
}

// sets are the sets of an impact by what becomes of their jobs.
func sets(i *plan.JobImpact) map[string][]plan.JobSet {
	return map[string][]plan.JobSet{
		"ended": {i.Ended}, "waited": {i.Waited}, "continues": {i.Preemptible, i.Continue}, "cancelled": {i.Cancelled}, "moved": {i.Moved},
		"cannot start": {i.CannotStart}, "queued": {i.Delayed, i.MayStart, i.Kept},
	}
}

// nodesIn returns the workers in a list of nodes, which squeue writes as gpu-[1-3].
func (c *company) nodesIn(list string) (names []string) {
	for _, w := range c.workers {
		n := w.Key.Name
		if list == n || regexp.MustCompile(`gpu-\[[^]]*`+strings.TrimPrefix(n, "gpu-")).MatchString(list) || list == "gpu-[1-3]" {
			names = append(names, n)
		}
	}
	return names
}

// queued returns the active jobs of a unit as a plan of it reads them.
func (c *company) queued(t testing.TB, u plan.Unit) []cli.QueuedJob {
	t.Helper()
	ask := cli.Snapshot()
	all, err := ask.Decode(cli.Answer{Stdout: []byte(c.onControl(t, u,
		"SLURM_BITSTR_LEN=0 SLURM_TIME_FORMAT=%s squeue '"+strings.Join(ask.Args, "' '")+"'"))})
	require.NoError(t, err)
	without := cli.Excluded()
	excluded, err := without.Decode(cli.Answer{Stdout: []byte(c.onControl(t, u, "squeue '"+strings.Join(without.Args, "' '")+"'"))})
	require.NoError(t, err)
	slurm.Exclude(all, excluded, workersOf(u).Members)
	for i := range all {
		all[i].Account = "" // as in the plan of an instance
	}
	return all
}
