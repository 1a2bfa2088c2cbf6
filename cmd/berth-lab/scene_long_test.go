//go:build long

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/await"
	"berth/runtimes"
	"berth/schema"
)

// restart restarts the daemon with its current configuration.
func (s *scene) restart() {
	s.Helper()
	require.NoError(s, s.daemon.stop())
	s.daemon = nil
	s.serve()
}

// observed waits until the daemon has observed units as often as given from now on, so
// that the effects of an observation have happened.
func (s *scene) observed(times float64) {
	s.Helper()
	count := func() float64 { return s.measure(s.daemon, "berth_runtime_calls_total", `operation="observe"`) }
	want := count() + times
	s.eventually("observations", func() string {
		if now := count(); now < want {
			return fmt.Sprint(now, ", not ", want)
		}
		return ""
	})
}

// kill ends one daemon as the kernel does when memory is short.
func (s *scene) kill(node, pidFile string) {
	s.Helper()
	s.on(node, "kill -9 $(cat "+pidFile+")")
}

// measure reads the sum of a metric's samples whose labels contain all of
// those given, such as `task="unit"`.
func (s *scene) measure(d *served, name string, labels ...string) float64 {
	s.Helper()
	resp, err := http.Get("http://" + d.listen + "/metrics")
	require.NoError(s, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || (rest[0] != '{' && rest[0] != ' ') ||
			slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		fields := strings.Fields(rest)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		require.NoError(s, err, line)
		sum += v
	}
	return sum
}

// sync runs `berth sync --once` beside or instead of a daemon.
func (s *scene) sync() (code int, output string) {
	s.Helper()
	config, _, err := s.configure(daemonConfig{name: "sync", url: s.git.URL,
		more: map[string]any{"interval": "1s", "authority": s.config.more["authority"]}})
	require.NoError(s, err)
	cmd := exec.CommandContext(s.Context(), s.berth, "sync", "-c", config, "--once", "--timeout", await.Limit.String())
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		require.NoError(s, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// slow runs the daemon without its timers for this day: it reconciles everything
// once, and afterwards only on webhooks.
func (s *scene) slow() {
	s.Helper()
	s.config.more = map[string]any{"interval": "1h", "poll": "1h", "flush_window": "300ms", "authority": map[string]any{"trust_main": true}}
	s.restart()
	s.Cleanup(func() {
		if err := s.daemon.stop(); err != nil {
			s.Error(err)
		}
		s.daemon = nil
	})
	s.eventually("every instance was observed", func() string {
		if n := s.measure(s.daemon, "berth_runtime_calls_total", `operation="observe"`); n < 2 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// decided waits until main's commit is decided.
func (s *scene) decided() {
	s.Helper()
	s.eventually("main is decided", func() string {
		if rev := s.tree().Revision; rev.Commit != s.git.Tip("main") || rev.Frozen != "" {
			return show(rev)
		}
		return ""
	})
}

// everything returns the start times of all daemons of all instances, to show
// whether one was restarted.
func (s *scene) everything() string {
	s.Helper()
	var all []string
	for _, key := range []schema.Key{labtest.Train, labtest.Assembly} {
		one, err := s.fingerprint(s.Context(), key)
		require.NoError(s, err)
		all = append(all, one)
	}
	return strings.Join(all, "\n")
}

// requests has a value for each request with effects that hosts begin from now on. A helper records
// the effects of a request in its ledger together, before the first of them.
func (s *scene) requests(nodes ...string) <-chan struct{} {
	s.Helper()
	const ledger = "/var/lib/berth/ledger.jsonl"
	begun := make(chan struct{}, 10000)
	for _, node := range nodes {
		size := s.on(node, "stat -c %s "+ledger+" 2>/dev/null || echo 0")
		cmd, err := s.lab.Command(s.Context(), node, "tail", "-F", "-c", "+"+size, ledger)
		require.NoError(s, err)
		out, err := cmd.StdoutPipe()
		require.NoError(s, err)
		require.NoError(s, cmd.Start()) // it ends with the test
		go func() {
			var last time.Time
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var e runtimes.LedgerEntry
				if json.Unmarshal(lines.Bytes(), &e) != nil {
					continue // the rest of an older line
				}
				if e.At.Sub(last) > time.Millisecond {
					select {
					case begun <- struct{}{}:
					default: // nobody counts
					}
				}
				last = e.At
			}
		}()
	}
	return begun
}
