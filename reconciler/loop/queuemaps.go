package loop

import (
	"encoding/json"
	"fmt"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
)

// queueMaps records the statuses of QueueMaps: the mode, and whether the rollback has expired (requirement C5).
// Only the goroutine of the estate's task uses it.
type queueMaps struct {
	*recorder
	metrics *Metrics
	hook    func(plan.Event) // nil: not called
}

// record records the maps in force, on the UTC day today, and those that are gone. Without a changed document
// or a day that is over it records nothing. merged are the commits of main that came last.
func (q *queueMaps) record(st *reconciler.State, merged []mergedCommit, today string) {
	expired, stays := 0, map[schema.Key]bool{}
	for _, m := range st.Desired.QueueMaps() {
		stays[m.Key] = true
		if m.Expired(today) {
			expired++
		}
		commit := attribute(merged, st.Main, []schema.Key{m.Key})[m.Key]
		q.set(m.Key, func(prev *plan.ThingStatus) plan.ThingStatus { return queueMapStatus(m, prev, commit, today) })
	}
	for _, s := range q.status.ResourcesOf(schema.KindQueueMap) {
		if stays[s.Key] {
			continue
		}
		commit := attribute(merged, st.Main, []schema.Key{s.Key})[s.Key]
		q.set(s.Key, func(prev *plan.ThingStatus) plan.ThingStatus { return deletedQueueMap(*prev, commit) })
		q.status.RemoveResource(q.status.Resource(s.Key))
	}
	q.metrics.rollbacksExpired.Set(float64(expired))
}

// set records a status, and calls the hook with its events.
func (q *queueMaps) set(key schema.Key, change func(prev *plan.ThingStatus) plan.ThingStatus) {
	prev := q.status.Resource(key)
	next := change(prev)
	if changed, ok := q.status.SetResource(prev, next); !ok || !changed || q.hook == nil {
		return // nobody else records queue maps
	}
	for _, e := range status.QueueMapEvents(prev, &next, q.now()) {
		q.hook(e)
	}
}

// queueMapStatus returns the status of a map in force after prev, which may be nil. commit is the commit that
// changed the document. Pure.
func queueMapStatus(m *schema.QueueMap, prev *plan.ThingStatus, commit, today string) plan.ThingStatus {
	s := plan.ThingStatus{APIVersion: schema.APIVersion, Kind: string(m.Key.Kind) + "Status", Key: m.Key, UID: m.UID,
		Phase: m.EffectiveMode()}
	s.Revision, s.CorrelationID = commit, reconciler.CorrelationID(commit)
	if prev != nil {
		var was status.QueueMapDetail
		if status.Detail(prev, &was); was.Declared == m.Blob {
			s.Revision, s.CorrelationID = prev.Revision, prev.CorrelationID
		}
	}
	data, err := json.Marshal(status.QueueMapDetail{AppSlug: m.Spec.App, AppliesTo: m.Spec.AppliesTo, Contract: m.Spec.Contract,
		Declared: m.Blob, Rollback: m.Spec.Rollback})
	if err == nil {
		s.Detail, err = schema.CanonicalJSON(data)
	}
	if err != nil {
		panic(err) // strings only
	}
	l := &conditionList{revision: s.Revision}
	l.set(plan.ConditionReady, true, plan.ReasonInForce, "")
	reason, message := plan.ReasonNoRollback, ""
	if r := m.Spec.Rollback; r != nil {
		reason, message = plan.ReasonActive, fmt.Sprintf("%s answers for the rollback until %s (%s)", r.Owner, r.ExpiresAt, r.FollowUp)
		if m.Expired(today) {
			reason, message = plan.ReasonExpired, overdue(r)
		}
	}
	l.set(plan.ConditionRollbackExpired, m.Expired(today), reason, message)
	l.set(plan.ConditionStalled, m.Expired(today), reason, message)
	s.Conditions = l.list
	return s
}

// overdue says who ends a rollback that has expired.
func overdue(r *schema.Rollback) string {
	return fmt.Sprintf("the rollback expired on %s: %s renews or removes it (%s)", r.ExpiresAt, r.Owner, r.FollowUp)
}

// deletedQueueMap returns the last status of a map whose document is gone. Pure.
func deletedQueueMap(prev plan.ThingStatus, commit string) plan.ThingStatus {
	next := prev
	if next.Phase == status.QueueMapDeleted {
		return next // an earlier daemon recorded it, and stopped before it removed the status
	}
	var d status.QueueMapDetail
	status.Detail(&prev, &d)
	d.Rollback = nil
	next.Detail, _ = json.Marshal(d) // strings only
	next.Phase, next.Revision, next.CorrelationID = status.QueueMapDeleted, commit, reconciler.CorrelationID(commit)
	next.Conditions = slices.DeleteFunc(slices.Clone(prev.Conditions),
		func(c plan.Condition) bool { return c.Status == plan.ConditionTrue })
	return next
}
