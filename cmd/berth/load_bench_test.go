package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/cmd/internal/labtest"
	"berth/examples/large"
	"berth/reconciler/gitrepo/gittest"
	"berth/runtimes/memory"
	"berth/schema"
)

// loadTest is a large estate on a Git server, and the program `berth serve` in a process of its own. Its
// hosts are simulated, each step there is saved in a file.
type loadTest struct {
	*testing.B
	shape   large.Shape
	dir     string
	program string
	listen  string
	files   map[string]string
	git     *gittest.Server
	process *exec.Cmd
}

// loadShapes are the estates of the load test. Nodes and tenants grow with the instances.
func loadShapes() []large.Shape {
	return []large.Shape{
		{Tenants: 100, Projects: 1, Instances: 10, Nodes: 100},
		{Tenants: 1_000, Projects: 1, Instances: 10, Nodes: 1_000},
		{Tenants: 5_000, Projects: 1, Instances: 10, Nodes: 5_000},
	}
}

func newLoad(b *testing.B, program string, shape large.Shape) *loadTest {
	l := &loadTest{B: b, shape: shape, program: program, dir: b.TempDir(), files: shape.Estate()}
	l.git = gittest.New(b, l.files)
	var err error
	l.listen, err = labtest.FreePort()
	require.NoError(b, err)
	return l
}

func (l *loadTest) instances() int { return l.shape.Tenants * l.shape.Projects * l.shape.Instances }

// start starts the daemon with the defaults of every field that more does not set.
func (l *loadTest) start(more map[string]any) {
	l.Helper()
	config := map[string]any{
		"listen": l.listen, "authority": map[string]any{"trust_main": true},
		"repository":     map[string]any{"url": l.git.URL, "directory": filepath.Join(l.dir, "mirror")},
		"memory_runtime": map[string]any{"directory": filepath.Join(l.dir, "world"), "backends": []string{"slurm"}},
	}
	maps.Copy(config, more)
	data, err := yaml.Marshal(config)
	require.NoError(l, err)
	path := filepath.Join(l.dir, "berth.yaml")
	require.NoError(l, os.WriteFile(path, data, 0o600))
	log, err := os.OpenFile(filepath.Join(l.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(l, err)
	defer log.Close()
	l.process = exec.Command(l.program, "serve", "-c", path)
	l.process.Stderr = log
	require.NoError(l, l.process.Start())
	l.Cleanup(l.kill)
}

// kill ends the daemon as a crash does.
func (l *loadTest) kill() {
	if l.process != nil {
		_ = l.process.Process.Kill()
		_ = l.process.Wait()
		l.process = nil
	}
}

// cpu returns the CPU time that the daemon and the programs that it started have used.
func (l *loadTest) cpu() time.Duration {
	l.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.process.Process.Pid))
	require.NoError(l, err)
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var ticks time.Duration
	for _, field := range fields[11:15] { // utime, stime, and those of children that ended
		n, err := strconv.Atoi(field)
		require.NoError(l, err)
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond // a tick of /proc
}

// memory returns resident memory of the daemon in MiB: now, and at most until now.
func (l *loadTest) memory() (now, most float64) {
	l.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.process.Process.Pid))
	require.NoError(l, err)
	for line := range strings.Lines(string(data)) {
		field := strings.Fields(line)
		for name, to := range map[string]*float64{"VmRSS:": &now, "VmHWM:": &most} {
			if field[0] == name {
				kib, err := strconv.ParseFloat(field[1], 64)
				require.NoError(l, err)
				*to = kib / 1024
			}
		}
	}
	return now, most
}

// metric returns the sum of a counter of the daemon over all series that have these labels, each
// written name="value". A daemon that does not answer yet has 0.
func (l *loadTest) metric(name string, labels ...string) (sum float64) {
	l.Helper()
	answer, err := http.Get("http://" + l.listen + "/metrics")
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	require.NoError(l, err)
	for line := range strings.Lines(string(data)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of, has, _ := strings.Cut(series, "{"); of == name &&
			!slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(has, label) }) {
			n, err := strconv.ParseFloat(value, 64)
			require.NoError(l, err)
			sum += n
		}
	}
	return sum
}

func (l *loadTest) until(what string, pace time.Duration, ok func() bool) {
	l.Helper()
	for deadline := time.Now().Add(30 * time.Minute); !ok(); time.Sleep(pace) {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(l.dir, "log"))
			l.Fatalf("timeout: %s\n%s", what, log[max(0, len(log)-4000):])
		}
	}
}

// isRunning reports whether berth/status says that every instance runs as a commit of main declares it.
func (l *loadTest) isRunning(commit string) bool {
	readme, err := l.git.Read("berth/status", "README.md")
	return err == nil && strings.Contains(readme, fmt.Sprintf("| … running | %d |", l.instances())) && strings.Contains(readme, commit)
}

// idle waits until the daemon has reconciled every instance since it started, and does nothing more.
func (l *loadTest) idle() {
	l.Helper()
	l.until("each instance is reconciled", 100*time.Millisecond, func() bool {
		return l.metric("berth_reconciles_total", `task="unit"`) >= float64(l.instances())
	})
	l.until("the daemon is idle", 0, func() bool {
		before := l.cpu()
		time.Sleep(2 * time.Second)
		return l.cpu()-before < 100*time.Millisecond
	})
}

// share returns which part of a core the daemon uses while time passes, in percent.
func (l *loadTest) share(of time.Duration) float64 {
	l.Helper()
	before, began := l.cpu(), time.Now()
	time.Sleep(of)
	return 100 * (l.cpu() - before).Seconds() / time.Since(began).Seconds()
}

// cold measures a daemon that has no cache and no host that runs anything, until all instances run.
func (l *loadTest) cold() {
	l.Helper()
	main := l.git.Tip("main")
	began := time.Now()
	l.start(nil)
	l.until("every instance runs", 100*time.Millisecond, func() bool { return l.isRunning(main) })
	took := time.Since(began)
	l.ReportMetric(float64(l.instances())/took.Seconds(), "instances/s")
	l.ReportMetric(took.Seconds()*1000, "cold-ms")
	l.ReportMetric(ms(l.cpu()), "cold-cpu-ms")
	l.ReportMetric(l.metric("berth_status_commits_total"), "cold-commits")
	l.ReportMetric(l.share(30*time.Second), "observe-percent") // two heartbeats, six observations of each instance
	now, most := l.memory()
	l.ReportMetric(now, "MiB")
	l.ReportMetric(most, "MiB-most")
	require.Zero(l, l.metric("reconciliation_actions_total", `result="failed"`))
	l.kill()
}

// restart measures a daemon that starts again after a change of one instance, until the change is on its host.
func (l *loadTest) restart() {
	l.Helper()
	const tenant = 7
	path := large.Instance(tenant, 0, 4)
	require.Contains(l, l.files[path], "max_time_minutes: 300\n")
	key := schema.InstanceKey(large.Tenant(tenant), "p0", "i04")
	host := filepath.Join(l.dir, "world", memory.UnitFile(key))
	var wall, cpu []time.Duration
	for n := range 3 {
		minutes := fmt.Sprint(301 + n)
		l.git.MustCommit(l, "main", gittest.Commit{Message: "longer jobs", Files: map[string]string{
			path: strings.Replace(l.files[path], "max_time_minutes: 300", "max_time_minutes: "+minutes, 1)}})
		began := time.Now()
		l.start(map[string]any{"interval": "24h", "poll": "1h"})
		l.until("the change is on its host", time.Millisecond, func() bool {
			data, err := os.ReadFile(host)
			return err == nil && bytes.Contains(data, []byte(minutes))
		})
		wall, cpu = append(wall, time.Since(began)), append(cpu, l.cpu())
		l.idle()
		require.Equal(l, 1.0, l.metric("reconciliation_actions_total"), "other units are left alone")
		if n < 2 {
			l.kill()
		}
	}
	l.ReportMetric(ms(median(wall)), "restart-ms")
	l.ReportMetric(ms(median(cpu)), "restart-cpu-ms")
}

// heartbeats measures a daemon that only reads the facts of the hosts.
func (l *loadTest) heartbeats() {
	l.Helper()
	const status = "berth/status"
	before := l.git.Tip(status)
	l.ReportMetric(l.share(time.Minute), "heartbeat-percent")
	commits, err := l.git.Git("rev-list", "--count", before+".."+l.git.Tip(status))
	require.NoError(l, err)
	require.Equal(l, "0", strings.TrimSpace(commits), "heartbeats make no commit")
	l.ReportMetric(0, "heartbeat-commits")
	l.kill()
}

// nothing measures commits that change no unit: the time of the runs of the task that fetches and decides them, from the fetch
// until the decision is in force. Polls that find nothing in between count too.
func (l *loadTest) nothing() {
	l.Helper()
	l.start(map[string]any{"interval": "24h", "poll": "1s"})
	l.idle()
	const estate = `task="estate"`
	effects := l.metric("reconciliation_actions_total") + l.metric("berth_runtime_calls_total")
	var wall, cpu []time.Duration
	for n := range 11 {
		spent, used := l.metric("berth_reconcile_duration_seconds_sum", estate), l.cpu()
		commit := l.git.MustCommit(l, "main", gittest.Commit{Message: "nothing", Files: map[string]string{"README.md": fmt.Sprint(n)}})
		l.until("the commit is decided", 20*time.Millisecond, func() bool {
			inForce, err := l.git.Git("log", "-1", "--format=%B", "berth/in-force")
			return err == nil && strings.Contains(inForce, commit)
		})
		runs := l.metric("berth_reconciles_total", estate)
		l.until("the decision is in force", 20*time.Millisecond, func() bool { return l.metric("berth_reconciles_total", estate) > runs })
		spent = l.metric("berth_reconcile_duration_seconds_sum", estate) - spent
		wall, cpu = append(wall, time.Duration(spent*float64(time.Second))), append(cpu, l.cpu()-used)
	}
	l.ReportMetric(ms(median(wall)), "nothing-ms")
	l.ReportMetric(ms(median(cpu)), "nothing-cpu-ms")
	effects = l.metric("reconciliation_actions_total") + l.metric("berth_runtime_calls_total") - effects
	l.ReportMetric(effects, "nothing-effects")
	require.Zero(l, effects, "actions, and calls of the runtime")
	l.kill()
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// BenchmarkServe measures berth serve with estates of three sizes, as a process: wall time, CPU time of the process and of the git
// commands that it starts, and resident memory. Git is real, and serves over HTTP from this process; hosts are simulated.
func BenchmarkServe(b *testing.B) {
	program := filepath.Join(b.TempDir(), "berth")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(b, err, string(out))
	for _, shape := range loadShapes() {
		b.Run(fmt.Sprint(shape.Tenants*shape.Projects*shape.Instances, "_instances"), func(b *testing.B) {
			for b.Loop() {
				l := newLoad(b, program, shape)
				l.cold()
				l.restart()
				l.heartbeats()
				l.nothing()
			}
		})
	}
}
