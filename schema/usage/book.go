package usage

import (
	"cmp"
	"slices"
	"time"
)

// Book is what berth/status has of a cluster beside what its accounting says now. It gives the records of the
// open days, which are written whole.
//
//   - A run that accounting has is recorded as accounting has it. Only its billing and its queue stay
//     as first recorded: an attachment may have been removed since, or a queue map changed.
//   - A run that accounting has no longer keeps its records.
//   - Closed days never change. If accounting says of a run that went on after the last closed day that it
//     had ended before, the difference is a correction on the first open day.
type Book struct {
	First string   // first open day; "": no day is closed
	Have  []Record // on the branch, of the last closed day and of the open days
	Now   []Record // by accounting; those of all days of a run, or those since First
}

// wentOn reports whether a record is of the last closed day, and of a run that went on after it.
func (b *Book) wentOn(r *Record) bool { return r.Day < b.First && r.State == "" && r.Corrects == "" }

// read returns the runs that accounting has.
func (b *Book) read() map[Run]bool {
	runs := map[Run]bool{}
	for i := range b.Now {
		runs[b.Now[i].Run()] = true
	}
	return runs
}

// Missing returns the runs that Now lacks and whose records may change, and when the first of them was
// submitted: accounting may have them on earlier days.
func (b *Book) Missing() (runs map[Run]bool, since time.Time) {
	read := b.read()
	return b.selectRuns(func(r *Record) bool { return !read[r.Run()] && (r.Day >= b.First || b.wentOn(r)) })
}

// Ended returns the runs that had ended before the first open day, although the last closed day has that they
// went on, and when the first of them was submitted.
func (b *Book) Ended() (runs map[Run]bool, since time.Time) {
	read, open := b.read(), map[Run]bool{}
	for i := range b.Now {
		if b.Now[i].Day >= b.First {
			open[b.Now[i].Run()] = true
		}
	}
	return b.selectRuns(func(r *Record) bool { return b.wentOn(r) && read[r.Run()] && !open[r.Run()] })
}

// selectRuns returns the runs of some records on the branch, and when the first of them was submitted.
func (b *Book) selectRuns(takes func(*Record) bool) (runs map[Run]bool, since time.Time) {
	runs = map[Run]bool{}
	for i := range b.Have {
		if r := &b.Have[i]; takes(r) {
			if len(runs) == 0 || r.Submitted.Before(since) {
				since = r.Submitted
			}
			runs[r.Run()] = true
		}
	}
	return runs, since
}

// part identifies the usage of a run on a day.
type part struct {
	Run
	day string
}

// OpenDays returns the records of the open days by day, also of a day that has none any more. closed are the
// records of all closed days on which a run of Ended may have run.
func (b *Book) OpenDays(closed []Record) map[string][]Record {
	days, read, recorded := map[string][]Record{}, b.read(), map[part]Record{}
	for _, r := range b.Have {
		switch {
		case r.Day < b.First:
		case !read[r.Run()]:
			days[r.Day] = append(days[r.Day], r)
		default:
			if _, ok := days[r.Day]; !ok {
				days[r.Day] = nil
			}
			if r.Corrects == "" {
				recorded[part{r.Run(), r.Day}] = r
			}
		}
	}
	for _, r := range b.Now {
		if r.Day < b.First {
			continue
		}
		if old, ok := recorded[part{r.Run(), r.Day}]; ok {
			r.GPUType, r.QoS = cmp.Or(r.GPUType, old.GPUType), cmp.Or(r.QoS, old.QoS) // a node or QoS that has left is not known any more
			r.Queue = old.Queue
			old.Job, old.Amounts = r.Job, r.Amounts
			r = old
		}
		days[r.Day] = append(days[r.Day], r)
	}
	if late := b.corrections(closed); len(late) > 0 {
		days[b.First] = append(days[b.First], late...)
	}
	return days
}

// corrections returns what accounting says of the runs of Ended on closed days less what their records have.
func (b *Book) corrections(closed []Record) (out []Record) {
	runs, _ := b.Ended()
	late := map[part]*Record{}
	of := func(r Record) *Record {
		at := part{r.Run(), cmp.Or(r.Corrects, r.Day)}
		if late[at] == nil {
			r.Day, r.Corrects, r.Amounts = b.First, at.day, Amounts{}
			r.Ended, r.Suspended = r.Started, 0 // unless accounting has it
			late[at] = &r
		}
		return late[at]
	}
	for _, r := range closed {
		if runs[r.Run()] && r.Day < b.First {
			of(r).add(-1, r.Amounts)
		}
	}
	for _, r := range b.Now {
		if runs[r.Run()] && r.Day < b.First {
			c := of(r)
			c.Ended, c.Suspended, c.State = r.Ended, r.Suspended, r.State
			c.add(1, r.Amounts)
		}
	}
	for _, r := range late {
		if r.Amounts != (Amounts{}) {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, compare)
	return out
}
