package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// reservations makes the declared reservations.
type reservations struct{ *control }

// reconcile makes, changes and deletes reservations. One that slurmctld refuses delays no
// other.
func (c reservations) reconcile(ctx context.Context) error {
	now := c.env.now()
	want, err := c.rec.cluster()
	if err != nil {
		return err
	}
	have, err := ask(ctx, c.control, cli.Reservations())
	if err != nil {
		return err
	}
	var errs []error
	for _, ch := range cluster.ReservationChanges(have, want.WantedReservations(now), now) {
		op := c.cli("scontrol", ch.Args...)
		res, err := c.do(ctx, op)
		if err == nil && res[0].Exit != 0 {
			err = c.exitError(op, res[0])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ch.Why, err))
		}
	}
	return errors.Join(errs...)
}

// compareReservations compares slurmctld's reservations with the declared ones. A failed query
// is not a difference.
func (v *observation) compareReservations(ctx context.Context) {
	now := v.ctl.env.now()
	want, err := v.ctl.rec.cluster()
	if err != nil {
		return
	}
	have, err := ask(ctx, v.ctl, cli.Reservations())
	if err != nil {
		return
	}
	for _, ch := range cluster.ReservationChanges(have, want.WantedReservations(now), now) {
		v.reservations = append(v.reservations, ch.Why)
	}
	v.reserved = reservedByHand(have, now)
}

// reservedByHand returns the reservations of people that are now, by node.
func reservedByHand(have []cli.Reservation, now time.Time) map[string]handReservation {
	reserved := map[string]handReservation{}
	for _, h := range have {
		if strings.HasPrefix(h.Name, profile.ReservationPrefix) || h.Start > now.Unix() || h.End <= now.Unix() {
			continue
		}
		for _, node := range h.Nodes {
			until := time.Unix(h.End, 0).UTC().Format("2006-01-02 15:04 UTC")
			if slices.Contains(h.Flags, "MAINT") {
				reserved[node] = handReservation{fmt.Sprintf("in the maintenance reservation %s until %s: only jobs submitted to it "+
					"start there", h.Name, until), true}
			} else {
				reserved[node] = handReservation{fmt.Sprintf("in the reservation %s until %s: other jobs do not start on what it holds",
					h.Name, until), false}
			}
		}
	}
	return reserved
}
