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

// News returns the records that the branch lacks: of parts that it does not have, and corrections of
// those that it has otherwise.
func (r *Recorded) News(records []Record) (out []Record) {
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

// Withdrawn returns corrections to nothing for the parts of a day and later that a reading of all runs
// since that day lacks, although it has the run: the run ended before, such as a job that the runtime
// had lost. A reading that lacks a run says nothing about it: missing are the parts of such runs.
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
