package usage

import (
	"cmp"
	"iter"
	"maps"
	"time"
)

// Recorded are the records that the branch has of a cluster.
type Recorded struct {
	parts map[Part]Record // with the highest correction
	last  time.Time       // end of the last one
}

// NewRecorded returns an empty Recorded.
func NewRecorded() *Recorded { return &Recorded{parts: map[Part]Record{}} }

// Add adds a record.
func (r *Recorded) Add(rec Record) {
	if old, ok := r.parts[rec.Part()]; !ok || rec.Correction > old.Correction {
		r.parts[rec.Part()] = rec
	}
	if rec.Ended.After(r.last) {
		r.last = rec.Ended
	}
}

// Last returns the end of the last record; zero without one.
func (r *Recorded) Last() time.Time { return r.last }

// All yields the record of each part that counts.
func (r *Recorded) All() iter.Seq2[Part, Record] { return maps.All(r.parts) }

// Unrecorded returns the records that the branch lacks: the first ones of parts, and corrections of parts
// whose record differs.
func (r *Recorded) Unrecorded(records []Record) (out []Record) {
	for _, rec := range records {
		if old, ok := r.parts[rec.Part()]; ok {
			rec.GPUType = cmp.Or(rec.GPUType, old.GPUType) // a node that has left is not known any more
			if rec.Job.Equal(old.Job) {
				continue
			}
			rec.Correction = max(rec.Correction, old.Correction+1)
		}
		out = append(out, rec)
	}
	return out
}

// Withdrawn compares the records of a day and later with a reading of all runs since that day. The runtime
// may correct the end of a run, such as that of a job that it had lost: out sets the parts after the new end
// to zero seconds. missing has the parts of runs that the reading does not have; nothing is known of them.
func (r *Recorded) Withdrawn(jobs []Job, first string) (out, missing []Record) {
	parts, runs := map[Part]bool{}, map[Run]bool{}
	for _, j := range jobs {
		parts[j.Part()], runs[j.Run()] = true, true
	}
	for part, rec := range r.parts {
		switch {
		case part.Day < first || parts[part] || rec.Held() == 0:
		case runs[part.Run]:
			rec.Ended, rec.Suspended, rec.Correction = rec.Started, 0, rec.Correction+1
			out = append(out, rec)
		default:
			missing = append(missing, rec)
		}
	}
	return out, missing
}
