// Package ledgers asks hosts for the entries of their ledgers, with the SSH key of the daemon: a user who can read that
// file can read every ledger. It changes nothing on a host.
//
// It must not know Git, units, or the meaning of entries.
package ledgers

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

	"berth/cmd/internal/daemon"
	"berth/cmd/internal/inspect"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// Bounds of the questions to hosts: a dead host must not keep a person waiting who triages a fault.
const (
	atOnce = 64
	within = 15 * time.Second // of one host
	whole  = time.Minute
)

// Ask returns a function that asks hosts as the section ssh of a berth.yaml says.
func Ask(config string) (inspect.AskHosts, error) {
	c, err := daemon.ReadConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, nodes map[string]*schema.Node, id string) ([]inspect.HostLedger, error) {
		if c.SSH == nil {
			return nil, errors.New(config + " has no section ssh")
		}
		if _, err := os.ReadFile(c.SSH.Key); err != nil {
			return nil, fmt.Errorf("ssh.key: %w; run the command as the user of the daemon", err)
		}
		hosts, err := c.Hosts(func(node string) string {
			if n := nodes[node]; n != nil {
				return n.Spec.HostKey
			}
			return ""
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		return read(ctx, hosts, nodes, id), hosts.Close()
	}, nil
}

// read asks all nodes in parallel, and returns their answers by name. Those that do not
// answer in time are unknown.
func read(ctx context.Context, hosts runtimes.Hosts, nodes map[string]*schema.Node, id string) []inspect.HostLedger {
	ctx, cancel := context.WithTimeoutCause(ctx, whole, fmt.Errorf("the other hosts took %v", whole))
	defer cancel()
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		all   = []inspect.HostLedger{}
		slots = make(chan struct{}, atOnce)
	)
	for name, n := range nodes {
		wait.Go(func() {
			l := inspect.HostLedger{Host: name, Entries: []inspect.HostEffect{}}
			select {
			case slots <- struct{}{}:
				ask(ctx, &l, hosts.Host(plan.Member{Node: name, Address: n.Spec.Address, SSHPort: n.Spec.SSHPort}), id)
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
	slices.SortFunc(all, func(a, b inspect.HostLedger) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

func ask(ctx context.Context, l *inspect.HostLedger, h runtimes.Host, id string) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within))
	defer cancel()
	res, err := h.Do(ctx, runtimes.Stamp{}, runtimes.Op{Ledger: &runtimes.ReadLedger{CorrelationID: id}})
	if err == nil && (len(res) != 1 || res[0].Ledger == nil) {
		err = errors.New("the answer has no ledger")
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

// effectOf splits an entry that says where a request stopped into operation and fault.
func effectOf(e runtimes.LedgerEntry) inspect.HostEffect {
	out := inspect.HostEffect{
		OccurredAt: e.At, Sequence: e.Seq, Epoch: e.Stamp.Epoch, Commit: e.Stamp.Commit, Verb: e.Stamp.Verb, ActionID: e.Stamp.ActionID,
		Operation: e.Op,
	}
	if stopped, ok := strings.CutPrefix(e.Op, runtimes.StoppedAt); ok {
		if at := strings.LastIndex(stopped, ": "); at >= 0 {
			out.Operation, out.Fault = stopped[:at], stopped[at+2:]
		}
	}
	return out
}
