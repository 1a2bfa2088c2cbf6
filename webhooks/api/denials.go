package api

import (
	"fmt"
	"sync"
	"time"

	"berth/schema/audit"
)

// foldedFor is how long the denials of one principal are counted before they
// are told together.
const foldedFor = time.Minute

// denials tells of the denied uses of admin paths without letting anybody fill
// the audit chain: the first of a principal at once, those that follow it within
// a minute as one record, and so on for as long as there are any. There are as
// many principals as tokens, so what is remembered is bounded.
type denials struct {
	tell func(audit.Record)

	mu   sync.Mutex
	open map[string]*folded // by actor: who was denied something within the last minute
}

type folded struct {
	more int          // since the last that was told
	last audit.Record // of these
}

func newDenials(tell func(audit.Record)) *denials {
	return &denials{tell: tell, open: map[string]*folded{}}
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
		d.tell(r)
	}
}

// fold tells of the minute that is over, and begins another if there was
// anything to tell.
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
		r.Reason = fmt.Sprintf("%d denied within a minute, of which this is the last: %s", n, r.Reason)
	}
	r.RecordID = r.ID()
	d.tell(r)
}
