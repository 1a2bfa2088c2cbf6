package ledgers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// fleet is hosts with ledgers. A host without one hangs.
type fleet struct {
	ledgers map[string][]runtimes.LedgerEntry
	failing map[string]error

	mu    sync.Mutex
	asked []string
}

func (f *fleet) Host(m plan.Member) runtimes.Host { return fleetHost{f, m} }
func (f *fleet) Close() error                     { return nil }

type fleetHost struct {
	fleet  *fleet
	member plan.Member
}

func (h fleetHost) Name() string { return h.member.Node }

func (h fleetHost) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	f := h.fleet
	f.mu.Lock()
	f.asked = append(f.asked, fmt.Sprintf("%s at %s:%d, epoch %d, %s", h.member.Node, h.member.Address, h.member.SSHPort, stamp.Epoch,
		ops[0].Ledger.CorrelationID))
	f.mu.Unlock()
	if err := f.failing[h.member.Node]; err != nil {
		return nil, err
	}
	entries, ok := f.ledgers[h.member.Node]
	if !ok {
		<-ctx.Done()
		return nil, fmt.Errorf("host %s: %w: %w", h.member.Node, runtimes.ErrUnreachable, context.Cause(ctx))
	}
	return []runtimes.Result{{Ledger: &runtimes.LedgerPart{Entries: entries}}}, nil
}

func node(name string) *schema.Node {
	n := &schema.Node{Spec: schema.NodeSpec{Address: name + ".example", SSHPort: 2222}}
	n.Key.Name = name
	return n
}

// All hosts are asked at once and without an epoch. A dead one and one with an old helper are
// unknown; the others are shown in order of time, with the fault of a request that stopped.
func TestTraceShowsTheLedgersOfHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
		entry := func(seconds int, verb, op string) runtimes.LedgerEntry {
			return runtimes.LedgerEntry{Seq: 7, At: at.Add(time.Duration(seconds) * time.Second), Op: op,
				Stamp: runtimes.Stamp{Epoch: 5, Commit: "c0ffee", CorrelationID: "corr", ActionID: "a-1", Verb: verb,
					Credential: runtimes.Credential{Credential: "secret-id"}}}
		}
		f := &fleet{
			ledgers: map[string][]runtimes.LedgerEntry{
				"head": {entry(1, "create", "write /etc/x"), entry(3, "create", "run sbatch --parsable"),
					entry(4, "create", runtimes.StoppedAt+"run sbatch a: b: exit")},
				"gpu": {entry(2, "join", "start service worker")}, "idle": {},
			},
			failing: map[string]error{"old": &runtimes.OpError{Host: "old", Op: "request", Message: "the answer has no ledger",
				Code: "invalid"}},
		}
		nodes := map[string]*schema.Node{}
		for _, name := range []string{"head", "gpu", "idle", "old", "dead"} {
			nodes[name] = node(name)
		}
		begun := time.Now()
		trace := &inspect.Trace{CorrelationID: "corr", Hosts: read(t.Context(), f, nodes, "corr")}
		require.Equal(t, within, time.Since(begun), "one dead host takes the limit, and no longer")
		require.Contains(t, f.asked, "head at head.example:2222, epoch 0, corr")
		require.Len(t, f.asked, 5)

		var out bytes.Buffer
		require.NoError(t, (&cli.Output{Form: "text"}).Print(&out, trace))
		var lines []string
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "host") || strings.HasPrefix(line, "unknown") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		require.Equal(t, []string{
			"host      2026-08-01 10:00:01Z  head  create  write /etc/x",
			"host      2026-08-01 10:00:02Z  gpu  join  start service worker",
			"host      2026-08-01 10:00:03Z  head  create  run sbatch --parsable",
			"host      2026-08-01 10:00:04Z  head  create  run sbatch a: b  fault: exit",
			"unknown   dead: host dead: host unreachable: no answer within 15s",
			"unknown   old: host old: request: the answer has no ledger",
			"hosts     5 hosts asked, 2 did not answer",
		}, lines)
		text, err := json.Marshal(trace.Hosts)
		require.NoError(t, err)
		require.Contains(t, string(text),
			`{"host":"gpu","entries":[{"occurred_at":"2026-08-01T10:00:02Z","sequence":7,"epoch":5,"commit":"c0ffee","verb":"join","action_id":"a-1","operation":"start service worker"}]}`)
		require.NotContains(t, string(text), "secret-id")
	})
}

// More dead hosts than are asked at once take a minute at most, and each has its own time.
func TestManyDeadHostsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := map[string]*schema.Node{}
		for i := range 6 * atOnce {
			nodes[fmt.Sprint("n", i)] = node(fmt.Sprint("n", i))
		}
		begun := time.Now()
		f := &fleet{}
		all := read(t.Context(), f, nodes, "corr")
		require.Equal(t, whole, time.Since(begun))
		require.Len(t, all, len(nodes))
		silent := 0
		for _, l := range all {
			if strings.Contains(l.Unknown, "no answer within 15s") {
				silent++
			} else {
				require.Contains(t, l.Unknown, "took 1m0s")
			}
		}
		require.GreaterOrEqual(t, silent, 3*atOnce)
		require.GreaterOrEqual(t, len(f.asked), 3*atOnce)
	})
}

// Without a key that the caller may read, no host is asked, and the trace says why.
func TestTraceSaysWhyNoHostWasAsked(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "berth.yaml")
	for ssh, want := range map[string]string{
		"": "has no section ssh",
		"ssh: {key: " + dir + "/none, known_hosts: " + dir + "/known_hosts}\n": "ssh.key: open " + dir +
			"/none: no such file or directory; run the command as the user of the daemon",
	} {
		require.NoError(t, os.WriteFile(config,
			[]byte("repository: {url: ., directory: .cache}\nauthority: {trust_local_commits: true}\n"+ssh), 0o600))
		ask, err := Ask(config)
		require.NoError(t, err)
		_, err = ask(t.Context(), nil, "corr")
		require.ErrorContains(t, err, want)
		trace := &inspect.Trace{CorrelationID: "corr", HostsNotAsked: err.Error()}
		var out bytes.Buffer
		require.NoError(t, (&cli.Output{Form: "text"}).Print(&out, trace))
		require.Contains(t, out.String(), "hosts     not asked for their ledgers: ")
	}
}
