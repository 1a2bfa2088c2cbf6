package cluster

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// reservation is a time in which no job starts on its nodes. Jobs that would still run at its
// start wait until its end.
type reservation struct {
	Name            string    `json:"name"`
	Start           time.Time `json:"start"` // UTC, whole seconds
	DurationMinutes int       `json:"duration_minutes"`
	Nodes           *nodeSel  `json:"nodes,omitempty"` // nil: all workers
}

func (r reservation) end() time.Time {
	return r.Start.Add(time.Duration(r.DurationMinutes) * time.Minute)
}

// nodesOf returns the nodes of the reservation, sorted.
func (r reservation) nodesOf(u *plan.Unit) []string {
	var nodes []string
	for _, m := range u.Members {
		if !m.ControlPlane && (r.Nodes == nil || r.Nodes.selects(m)) {
			nodes = append(nodes, m.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

var reservationName = regexp.MustCompile(`^[a-z]([-_0-9a-z]{0,30}[0-9a-z])?$`)

const maxReservation = 365 * 24 * 60 // minutes

func (c *configCheck) reservations() {
	seen := map[string]bool{}
	for i, r := range c.set.Reservations {
		at := item("reservations", i)
		if !reservationName.MatchString(r.Name) || seen[r.Name] {
			c.add(at+".name", "%q is invalid, or there twice", r.Name)
		}
		seen[r.Name] = true
		if r.Start.Year() < 2000 || r.Start.Year() > 2099 || r.Start.Nanosecond() != 0 {
			c.add(at+".start", "%s is no time between 2000 and 2099 in whole seconds", r.Start.Format(time.RFC3339Nano))
		}
		if r.DurationMinutes < 1 || r.DurationMinutes > maxReservation {
			c.add(at+".duration_minutes", "is %d", r.DurationMinutes)
		}
	}
}

// maintenance are the flags of each reservation: it may overlap others, its nodes are in
// maintenance in reports, and running jobs do not keep it from being made (scontrol(1)).
var maintenance = []string{"MAINT", "IGNORE_JOBS"}

// maintainer may submit jobs to a reservation. Slurm requires at least one user.
const maintainer = "root"

// WantedReservations returns the declared reservations that are not over, as slurmctld has
// them. One without a worker has no nodes and cannot be made.
func (c *Cluster) WantedReservations(now time.Time) (out []cli.Reservation) {
	for _, d := range c.set.Reservations {
		nodes := d.nodesOf(c.unit)
		if len(nodes) > 0 && d.end().After(now) {
			out = append(out, cli.Reservation{
				Name: profile.ReservationPrefix + d.Name, Start: d.Start.Unix(), End: d.end().Unix(), Nodes: nodes,
				Users: []string{maintainer}, Flags: maintenance,
			})
		}
	}
	return out
}

// reservationChange is a call of scontrol.
type reservationChange struct {
	Args []string
	Why  string // what differs
}

// ReservationChanges returns the changes that turn have into want. Berth owns the
// reservations whose names have its prefix, and leaves all others alone. The start of a
// reservation that has begun cannot change: to move the start, the reservation is deleted and created again.
func ReservationChanges(have, want []cli.Reservation, now time.Time) []reservationChange {
	var out []reservationChange
	for _, w := range want {
		name := "reservation " + strings.TrimPrefix(w.Name, profile.ReservationPrefix)
		begins := fmt.Sprintf("starttime=uts%d", w.Start)
		if w.Start <= now.Unix() {
			begins = "starttime=now"
		}
		rest := []string{fmt.Sprintf("endtime=uts%d", w.End), "nodes=" + strings.Join(w.Nodes, ","), "users=" + maintainer,
			"flags=" + strings.Join(maintenance, ",")}
		create := append([]string{"create", "reservation", "reservationname=" + w.Name, begins}, rest...)
		i := slices.IndexFunc(have, func(h cli.Reservation) bool { return h.Name == w.Name })
		if i < 0 {
			out = append(out, reservationChange{create, name + " is missing"})
			continue
		}
		begun := have[i].Start <= now.Unix()
		if begun && w.Start > now.Unix() {
			why := name + " has begun, and is to begin later"
			out = append(out, reservationChange{[]string{"delete", "reservationname=" + w.Name}, why}, reservationChange{create, why})
			continue
		}
		differs := differencesOf(have[i], w)
		if have[i].Start != w.Start && !begun {
			differs = append([]string{"start"}, differs...)
			rest = append([]string{begins}, rest...)
		}
		if len(differs) > 0 {
			out = append(out, reservationChange{append([]string{"update", "reservation", "reservationname=" + w.Name}, rest...),
				name + " has another " + strings.Join(differs, ", ")})
		}
	}
	for _, h := range have {
		if strings.HasPrefix(h.Name, profile.ReservationPrefix) && h.End > now.Unix() &&
			!slices.ContainsFunc(want, func(w cli.Reservation) bool { return w.Name == h.Name }) {
			out = append(out, reservationChange{[]string{"delete", "reservationname=" + h.Name},
				"reservation " + strings.TrimPrefix(h.Name, profile.ReservationPrefix) + " is not declared"})
		}
	}
	return out
}

// differencesOf names what of a reservation, other than its start, is not as wanted.
func differencesOf(have, want cli.Reservation) (differs []string) {
	slices.Sort(have.Nodes)
	for _, part := range []struct {
		name string
		same bool
	}{
		{"end", have.End == want.End}, {"nodes", slices.Equal(have.Nodes, want.Nodes)}, {"users", slices.Equal(have.Users, want.Users)},
		{"flags", !slices.ContainsFunc(maintenance, func(f string) bool { return !slices.Contains(have.Flags, f) })},
	} {
		if !part.same {
			differs = append(differs, part.name)
		}
	}
	return differs
}

// reservationDifferences returns the reservations that differ between two configs, and when
// jobs have to have ended for those that are added or changed.
func reservationDifferences(before, after *Cluster) (differences []plan.Difference, notes []string) {
	old, now := &before.set, &after.set
	text := func(r reservation) string {
		b, _ := json.Marshal(r) // plain data
		return string(b)
	}
	find := func(all []reservation, name string) string {
		if i := slices.IndexFunc(all, func(r reservation) bool { return r.Name == name }); i >= 0 {
			return text(all[i])
		}
		return ""
	}
	for _, r := range now.Reservations {
		if find(old.Reservations, r.Name) != text(r) {
			differences = append(differences, plan.Difference{What: "reservation " + r.Name, Class: plan.ClassLive})
			if len(r.nodesOf(after.unit)) == 0 {
				notes = append(notes, "reservation "+r.Name+" is not made, as its nodes select no worker")
				continue
			}
			notes = append(notes, fmt.Sprintf("jobs that would still run at %s wait for the end of reservation %s, and jobs that run go on",
				r.Start.UTC().Format(time.RFC3339), r.Name))
		}
	}
	for _, r := range old.Reservations {
		if find(now.Reservations, r.Name) == "" {
			differences = append(differences, plan.Difference{What: "reservation " + r.Name, Class: plan.ClassLive})
		}
	}
	return differences, notes
}
