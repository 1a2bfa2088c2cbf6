package plan

import (
	"encoding/json"

	"berth/schema"
)

// ThingStatus is the status document of a declared resource other than a unit: a shared
// runtime, an attachment, an artifact, a version of an app or a node. It is memory,
// never permission.
type ThingStatus struct {
	APIVersion    string          `json:"apiVersion"`
	Kind          string          `json:"kind"` // the declared kind and "Status", such as ArtifactStatus
	Key           schema.Key      `json:"key"`
	UID           string          `json:"uid,omitempty"`            // of its document, if that has one
	Phase         string          `json:"phase"`                    // phase of this kind, such as registered
	Conditions    []Condition     `json:"conditions,omitempty"`     // sorted by type
	Revision      string          `json:"revision,omitempty"`       // config commit it follows
	CorrelationID string          `json:"correlation_id,omitempty"` // of the change it follows
	Detail        json.RawMessage `json:"detail,omitempty"`         // further facts; canonical JSON object
}

// Condition returns the condition of a type, or nil if the status has none.
func (s *ThingStatus) Condition(typ ConditionType) *Condition {
	if s == nil {
		return nil
	}
	return conditionOf(s.Conditions, typ)
}
