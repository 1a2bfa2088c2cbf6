package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/schema"
)

// AskHosts asks nodes for what their ledgers have of a correlation id. A node that does not answer
// is in the result; the error is why none was asked.
type AskHosts func(ctx context.Context, nodes map[string]*schema.Node, id string) ([]HostLedger, error)

// HostLedger has the entries of one host's ledger with a correlation id.
type HostLedger struct {
	Host    string       `json:"host"`
	Entries []HostEffect `json:"entries"`
	Earlier int          `json:"earlier,omitempty"` // older entries that the host left out
	Unknown string       `json:"unknown,omitempty"` // why the host did not answer; "": it did
}

// HostEffect is an entry of a host's ledger.
type HostEffect struct {
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

// askHosts adds the ledgers of the nodes in force.
func (t *Trace) askHosts(ctx context.Context, r *Repository, ask AskHosts) {
	nodes, err := r.nodes(ctx)
	if err != nil {
		t.HostsNotAsked = fmt.Sprintf("the nodes in force are unreadable: %v", err)
		return
	}
	if t.Hosts, err = ask(ctx, nodes, t.CorrelationID); err != nil {
		t.HostsNotAsked = err.Error()
	}
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

// hasEffects reports whether a host has entries of the id.
func (t *Trace) hasEffects() bool {
	return slices.ContainsFunc(t.Hosts, func(l HostLedger) bool { return len(l.Entries) > 0 })
}

// writeLedgers writes the entries of all hosts in order of time by the hosts' clocks, and the hosts that did not
// answer.
func (t *Trace) writeLedgers(line func(format string, args ...any)) {
	type entry struct {
		host string
		HostEffect
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
