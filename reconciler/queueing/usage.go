package queueing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/queue"
	"berth/schema/usage"
)

// usageEvery is how long a reading of usage serves: accounting takes a second or more for it. For callers with live it is
// observeEvery.
const usageEvery = time.Minute

// Usage returns what the project of the caller used of its units on the last days, until now. A unit is read at most once
// a minute; live: at most every 10 s. A unit that cannot be read is in the answer with the reason.
func (s *Service) Usage(ctx context.Context, c Caller, live bool) (usage.ProjectUsage, error) {
	view, ok := s.o.View()
	if _, leads := s.o.Stamp(); !ok || !leads || s.o.Usage == nil {
		return usage.ProjectUsage{}, fmt.Errorf("%w: this daemon does not lead yet", queue.ErrUnavailable)
	}
	out := usage.ProjectUsage{ProjectID: c.Instance.ProjectID(), Items: []usage.UnitUsage{}}
	for _, unit := range usedUnits(view, c.Instance) {
		item, err := s.unitUsage(ctx, unit, out.ProjectID, live)
		if err != nil {
			return usage.ProjectUsage{}, err
		}
		out.Items = append(out.Items, item)
	}
	for _, item := range out.Items {
		if o := item.Observed; o != nil {
			o.AgeSeconds = max(0, int(time.Since(o.ObservedAt)/time.Second))
		}
	}
	return out, nil
}

// usedUnits returns the units that the project of an instance uses, in order of names: its own ones, and the shared
// runtimes to which it is attached.
func usedUnits(view plan.View, of schema.Key) (units []*plan.Status) {
	for key, status := range view.Units.All() {
		if !isObserved(status) && (status.Phase == plan.PhaseDeleting || status.Phase == plan.PhaseDeleted) {
			continue
		}
		if isObserved(status) && status.Observed.Unit.Effective.SharedRuntime != "" {
			continue // it uses a shared runtime, which is another unit
		}
		isOwn := key.Kind == schema.KindInstance && key.Tenant == of.Tenant && key.Project == of.Project
		isAttached := slices.ContainsFunc(status.Attachments, func(a plan.AttachmentStatus) bool {
			return a.ProjectID == of.ProjectID() && a.Phase == plan.AttachmentAttached
		})
		if isOwn || isAttached {
			units = append(units, status)
		}
	}
	slices.SortFunc(units, func(a, b *plan.Status) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return units
}

// isObserved reports whether a unit has hosts that can be asked.
func isObserved(s *plan.Status) bool { return s.Observed != nil && s.Observed.Unit != nil }

// unitUsage returns what a project used of a unit, without its age. The error is that of ctx.
func (s *Service) unitUsage(ctx context.Context, unit *plan.Status, project string, live bool) (usage.UnitUsage, error) {
	out := usage.UnitUsage{Unit: unit.Key.String(), AppSlug: unit.App}
	if !isObserved(unit) {
		out.Reason = "the unit does not exist yet, or is being made again"
		return out, nil
	}
	got, err := s.usage.read(ctx, unitKey{unit: unit.Key}, "", live, func(ctx context.Context) (usage.LiveUsage, error) {
		ctx, leave, err := s.enter(ctx, unit.Observed.Unit, observationOf(unit.Key, "usage")) // slow readings delay no queue
		if err != nil {
			return usage.LiveUsage{}, err
		}
		defer leave()
		return s.o.Usage(ctx, unit.Key)
	})
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case errors.Is(err, queue.ErrUnavailable):
		out.Reason = strings.TrimPrefix(err.Error(), queue.ErrUnavailable.Error()+": ")
	case err != nil: // may have names of files and hosts, which the daemon's log has
		out.Reason = "the records of usage cannot be read"
	}
	used := got.found
	if err != nil || used.ObservedAt.IsZero() {
		out.Reason = cmp.Or(out.Reason, used.Reason)
		return out, nil
	}
	out.Observed, out.Reason, out.Days = &usage.Observed{ObservedAt: used.ObservedAt}, used.Reason, []usage.DaySum{}
	for _, d := range used.Days {
		if d.ProjectID == project {
			out.Days = append(out.Days, d)
		}
	}
	return out, nil
}
