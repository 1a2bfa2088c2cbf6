package daemon

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"berth/reconciler"
	"berth/schema/audit"
	"berth/webhooks/journal"
)

// breakGlassLog keeps audit records of break-glass access from before a request is
// answered until they are on berth/status (requirement B2). A file keeps them across
// restarts and crashes.
type breakGlassLog struct {
	journal *journal.Journal[string] // of records as audit.Encode writes them
	marking sync.WaitGroup

	mu   sync.Mutex
	owed []audit.Record // in order
}

var _ reconciler.Owed = (*breakGlassLog)(nil)

// openBreakGlassLog opens the log in an estate's cache. If the disk cannot be
// written, the daemon starts, and refuses break-glass access until it can.
func openBreakGlassLog(c *Config, log *slog.Logger) *breakGlassLog {
	j, err := journal.Open[string](journal.Options{Path: filepath.Join(c.Repository.Directory, "break-glass")})
	if err != nil {
		log.Error("break-glass journal not writable; break-glass access refused", "error", err)
	}
	g := &breakGlassLog{journal: j}
	for _, line := range j.Pending() {
		r, err := audit.Decode([]byte(line))
		if err != nil {
			log.Error("break-glass record unreadable; it stays in the journal", "error", err)
			continue
		}
		g.owed = append(g.owed, r)
	}
	return g
}

// add returns when a record is on the disk, to be written to berth/status.
func (g *breakGlassLog) add(r audit.Record) error {
	line := string(audit.Encode(r))
	if _, err := g.journal.Take("", []string{line}); err != nil {
		g.done(line) // the request is refused, so nothing was read
		return fmt.Errorf("break-glass record not kept: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owed = append(g.owed, r)
	return nil
}

// Records are those that are not on berth/status yet.
func (g *breakGlassLog) Records() []audit.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.owed)
}

// Written removes records. The disk is updated later, as it may be slow; if the
// process is killed before, berth/status shows the next one which are written.
func (g *breakGlassLog) Written(ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owed = slices.DeleteFunc(g.owed, func(r audit.Record) bool {
		if !slices.Contains(ids, r.RecordID) {
			return false
		}
		g.marking.Go(func() { g.done(string(audit.Encode(r))) })
		return true
	})
}

func (g *breakGlassLog) done(line string) {
	g.journal.Begin(func(l string) bool { return l == line })()
}

// Close is called when no record is added or written any more.
func (g *breakGlassLog) Close() error {
	g.marking.Wait()
	return g.journal.Close()
}
