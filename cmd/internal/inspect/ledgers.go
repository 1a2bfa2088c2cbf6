package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/daemon"
	"berth/cmd/internal/localestate"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// Bounds of the questions to hosts: a dead host must not keep a person waiting who triages a fault.
const (
	ledgersAtOnce = 64
	ledgersWithin = 15 * time.Second
)

// hostLedger is what the ledger of one host has of a correlation id.
type hostLedger struct {
	Host    string       `json:"host"`
	Entries []hostEffect `json:"entries"`
	Earlier int          `json:"earlier,omitempty"` // older entries that the host left out
	Unknown string       `json:"unknown,omitempty"` // why the host did not answer; "": it did
}

// hostEffect is an entry of a host's ledger.
type hostEffect struct {
	OccurredAt time.Time `json:"occurred_at"`
	Sequence   uint64    `json:"sequence"` // in the ledger of the host
	Epoch      uint64    `json:"epoch"`    // of the leader
	Commit     string    `json:"commit,omitempty"`
	Verb       string    `json:"verb,omitempty"`
	ActionID   string    `json:"action_id,omitempty"`
	Operation  string    `json:"operation"` // without contents
	// Fault is the code of a fault, such as exit or timeout: the operation failed, and those after it in the
	// same request were not done. "": the operation was recorded before it was done.
	Fault string `json:"fault,omitempty"`
}

// effectOf splits an entry that says where a request stopped into operation and fault.
func effectOf(e runtimes.LedgerEntry) hostEffect {
	out := hostEffect{e.At, e.Seq, e.Stamp.Epoch, e.Stamp.Commit, e.Stamp.Verb, e.Stamp.ActionID, e.Op, ""}
	if stopped, ok := strings.CutPrefix(e.Op, runtimes.StoppedAt); ok {
		if at := strings.LastIndex(stopped, ": "); at >= 0 {
			out.Operation, out.Fault = stopped[:at], stopped[at+2:]
		}
	}
	return out
}

// Ledgers reads the ledgers of the hosts that Node documents in force declare. It asks with the
// SSH key of the daemon: whoever may read that file may read every ledger.
type Ledgers struct {
	Config string // berth.yaml
}

// read adds the ledgers of all hosts to a trace. A host that does not answer is no error.
func (o Ledgers) read(ctx context.Context, r *Repository, t *Trace) error {
	c, err := daemon.ReadConfig(o.Config)
	if err != nil {
		return err
	}
	if c.SSH == nil {
		t.HostsNotAsked = o.Config + " has no section ssh"
		return nil
	}
	if _, err := os.ReadFile(c.SSH.Key); err != nil {
		t.HostsNotAsked = fmt.Sprintf("ssh.key: %v; run the command as the user of the daemon", err)
		return nil
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		t.HostsNotAsked = fmt.Sprintf("the nodes in force are unreadable: %v", err)
		return nil
	}
	hosts, err := c.Hosts(func(node string) string {
		if n := nodes[node]; n != nil {
			return n.Spec.HostKey
		}
		return ""
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ledgersWithin, fmt.Errorf("no answer within %v", ledgersWithin))
	defer cancel()
	t.Hosts = readLedgers(ctx, hosts, nodes, t.CorrelationID)
	return hosts.Close()
}

// platformPart is a snapshot without the tenants.
type platformPart struct{ schema.Snapshot }

func (s platformPart) Parts(ctx context.Context) ([]schema.Part, error) {
	parts, err := s.Snapshot.Parts(ctx)
	return slices.DeleteFunc(slices.Clone(parts), func(p schema.Part) bool { return p.Name != "platform" }), err
}

// nodes returns the Node documents in force by name.
func (r *Repository) nodes(ctx context.Context) (map[string]*schema.Node, error) {
	if r.tips.InForce == "" {
		return nil, nil
	}
	snap, err := r.Snapshot(ctx, r.tips.InForce)
	if err != nil {
		return nil, err
	}
	loader, err := localestate.NewLoader()
	if err != nil {
		return nil, err
	}
	loaded, err := loader.Load(ctx, platformPart{snap})
	if err != nil || loaded.Desired.Platform == nil {
		return nil, err
	}
	return loaded.Desired.Platform.Nodes, nil
}

// readLedgers asks all nodes in parallel, and returns their answers by name. When ctx ends, those that
// have not answered are unknown.
func readLedgers(ctx context.Context, hosts runtimes.Hosts, nodes map[string]*schema.Node, id string) []hostLedger {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		all   = []hostLedger{}
		slots = make(chan struct{}, ledgersAtOnce)
	)
	for name, n := range nodes {
		wait.Go(func() {
			l := hostLedger{Host: name, Entries: []hostEffect{}}
			select {
			case slots <- struct{}{}:
				l.ask(ctx, hosts.Host(plan.Member{Node: name, Address: n.Spec.Address, SSHPort: n.Spec.SSHPort}), id)
				<-slots
			case <-ctx.Done():
				l.Unknown = fmt.Sprintf("not asked: %v", context.Cause(ctx))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, l)
		})
	}
	wait.Wait()
	slices.SortFunc(all, func(a, b hostLedger) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

func (l *hostLedger) ask(ctx context.Context, h runtimes.Host, id string) {
	res, err := h.Do(ctx, runtimes.Stamp{}, runtimes.Op{Ledger: &runtimes.ReadLedger{CorrelationID: id}})
	if err == nil && (len(res) != 1 || res[0].Ledger == nil) {
		err = errors.New("the answer has no ledger; install the berth-host of the same release")
	}
	if err != nil {
		l.Unknown = err.Error()
		return
	}
	l.Earlier = res[0].Ledger.Earlier
	for _, e := range res[0].Ledger.Entries {
		l.Entries = append(l.Entries, effectOf(e))
	}
}

// hasEffects reports whether a host has entries of the id.
func (t *Trace) hasEffects() bool {
	return slices.ContainsFunc(t.Hosts, func(l hostLedger) bool { return len(l.Entries) > 0 })
}

// writeLedgers writes the entries of all hosts in order of time by the hosts' clocks, and the hosts that did not
// answer.
func (t *Trace) writeLedgers(line func(format string, args ...any)) {
	type entry struct {
		host string
		hostEffect
	}
	var all []entry
	silent := 0
	for _, l := range t.Hosts {
		for _, e := range l.Entries {
			all = append(all, entry{l.Host, e})
		}
		if l.Earlier > 0 {
			line("host      %s  %d older entries are left out; they are in its ledger", l.Host, l.Earlier)
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return a.OccurredAt.Compare(b.OccurredAt) })
	for _, e := range all {
		fault := ""
		if e.Fault != "" {
			fault = "  fault: " + e.Fault
		}
		line("host      %s  %s  %s  %s%s", cli.Stamp(e.OccurredAt), e.host, cli.OrDash(e.Verb), e.Operation, fault)
	}
	for _, l := range t.Hosts {
		if l.Unknown != "" {
			silent++
			line("unknown   %s: %s", l.Host, l.Unknown)
		}
	}
	if t.HostsNotAsked != "" {
		line("hosts     not asked for their ledgers: %s", t.HostsNotAsked)
	}
	if len(t.Hosts) > 0 {
		line("hosts     %s asked, %d did not answer", cli.Count(len(t.Hosts), "host"), silent)
	}
}
