package api

import (
	"fmt"
	"sync"
	"time"

	"berth/schema/audit"
)

// foldedFor is how long the denials of one principal are counted before they become
// one record.
const foldedFor = time.Minute

// denials records denied uses of admin paths, and refusals of service accounts, so that
// nobody can fill the audit log:
// the first denial of a principal at once, then one record a minute for those that
// follow. It keeps one entry for each principal at most, and so for each token.
type denials struct {
	record func(audit.Record)

	mu   sync.Mutex
	open map[string]*folded // actors with a denial within the last minute
}

type folded struct {
	more int          // denials since the last record
	last audit.Record // the newest of them
}

func newDenials(record func(audit.Record)) *denials {
	return &denials{record: record, open: map[string]*folded{}}
}

func (d *denials) add(r audit.Record) {
	d.mu.Lock()
	f, open := d.open[r.Actor]
	if open {
		f.more, f.last = f.more+1, r
	} else {
		d.open[r.Actor] = &folded{}
		time.AfterFunc(foldedFor, func() { d.fold(r.Actor) })
	}
	d.mu.Unlock()
	if !open {
		d.record(r)
	}
}

// fold records the denials of the last minute, and starts another minute if there
// were any.
func (d *denials) fold(actor string) {
	d.mu.Lock()
	f := d.open[actor]
	if f.more == 0 {
		delete(d.open, actor)
		d.mu.Unlock()
		return
	}
	n, r := f.more, f.last
	f.more = 0
	time.AfterFunc(foldedFor, func() { d.fold(actor) })
	d.mu.Unlock()
	if n > 1 {
		r.Reason = fmt.Sprintf("%d requests denied within a minute; the last: %s", n, r.Reason)
	}
	r.RecordID = r.ID()
	d.record(r)
}
