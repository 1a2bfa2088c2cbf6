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

// glass keeps the records of who broke the glass, from before they are answered
// until they are on berth/status, whatever becomes of the process in between
// (requirement B2). Without a process they wait in its file for the next.
type glass struct {
	journal *journal.Journal[string] // of records as audit.Encode has them
	marking sync.WaitGroup

	mu   sync.Mutex
	owed []audit.Record // in order
}

var _ reconciler.Owed = (*glass)(nil)

// openGlass opens what is kept in an estate's cache. A disk that cannot be
// written keeps nobody from starting: the glass is not broken until it can be.
func openGlass(c *config, log *slog.Logger) *glass {
	j, err := journal.Open[string](journal.Options{Path: filepath.Join(c.Repository.Directory, "break-glass")})
	if err != nil {
		log.Error("the journal of who broke the glass", "error", err)
	}
	g := &glass{journal: j}
	for _, line := range j.Pending() {
		r, err := audit.Decode([]byte(line))
		if err != nil {
			log.Error("a record of who broke the glass cannot be read; it stays in the journal", "error", err)
			continue
		}
		g.owed = append(g.owed, r)
	}
	return g
}

// keep returns when a record is on the disk, to be written to berth/status.
func (g *glass) keep(r audit.Record) error {
	line := string(audit.Encode(r))
	if _, err := g.journal.Take("", []string{line}); err != nil {
		g.done(line) // nobody is answered, so nothing was read
		return fmt.Errorf("the record of who broke the glass is not kept: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.owed = append(g.owed, r)
	return nil
}

// Records are those that are not on berth/status yet.
func (g *glass) Records() []audit.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.owed)
}

// Written forgets records. The disk is told later, as it may take long; what it
// was not told of when the process is killed, berth/status tells the next.
func (g *glass) Written(ids []string) {
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

func (g *glass) done(line string) { g.journal.Begin(func(l string) bool { return l == line })() }

// Close is for when nobody keeps or writes any more.
func (g *glass) Close() error {
	g.marking.Wait()
	return g.journal.Close()
}
