// Package boundary is the contract slurm-adapter-boundary/v1: it resolves the queue that a person asks
// for to the partition, account and QoS of Slurm (requirements C1 to C3 and C7, document CUT). Its three
// modes have one shape, one idempotency key and one bound of retries.
//
// The package is pure. It must not know hosts, HTTP, the time or how a job is submitted, and it keeps
// nothing between two calls, so no tenant depends on the calls of another.
package boundary

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/queue"
)

// ContractVersion is the version of the contract in each Resolution.
const ContractVersion = "slurm-adapter-boundary/v1"

// MaxRetries bounds the retries of an adapter itself, in every mode. Later tries are those of the
// caller, who sends the same idempotency key again.
const MaxRetries = 3

// Mode is a mode of the adapter.
type Mode string

// The modes. Passthrough gives Slurm the requested queue as its partition. StubPolicy resolves by the
// map of queues alone. RealPolicy resolves by the same map in the same way, and asks the running
// scheduler whether the partition, account and QoS of the map exist.
const (
	Passthrough Mode = schema.ModePassthrough
	StubPolicy  Mode = schema.ModeStubPolicy
	RealPolicy  Mode = schema.ModeRealPolicy
)

// Modes lists the modes.
func Modes() []Mode { return []Mode{Passthrough, StubPolicy, RealPolicy} }

// Confirm asks the running scheduler whether the partition, account and QoS of a mapping exist. An error that wraps no error
// class of package queue is an operational failure.
type Confirm func(queue.Mapping) error

// Resolve resolves a requested queue; "" asks for the default. m is the map in force for the project;
// only Passthrough works without one. confirm is called in RealPolicy only.
//
// The error wraps queue.ErrConfiguration, queue.ErrDenied or queue.ErrUnavailable. No error changes the
// queue. A queue that the map does not name is resolved to fallback_queue, if the map has one, and
// UsedFallback is then true.
func Resolve(mode Mode, m *schema.QueueMap, requested string, confirm Confirm) (queue.Resolution, error) {
	r := queue.Resolution{Adapter: string(mode), ContractVersion: ContractVersion, RequestedQueue: requested, ResolvedQueue: requested}
	switch {
	case !slices.Contains(Modes(), mode):
		return queue.Resolution{}, fmt.Errorf("%w: the mode %q is unknown; use one of %v", queue.ErrConfiguration, mode, Modes())
	case requested != "" && !queue.IsName(requested):
		return queue.Resolution{},
			fmt.Errorf("%w: %.80q is not a name of a queue; use letters, digits, dots, dashes and underscores, and commas between several",
				queue.ErrDenied, requested)
	case mode == Passthrough:
		return r, nil
	case strings.Contains(requested, ","):
		return queue.Resolution{}, fmt.Errorf("%w: %.80q names several queues: ask for one of the map", queue.ErrDenied, requested)
	}
	line, usedFallback, err := find(m, requested)
	if err != nil {
		return queue.Resolution{}, err
	}
	r.ResolvedQueue, r.UsedFallback = line.Queue, usedFallback
	r.Mapping = &queue.Mapping{Queue: line.Queue, Partition: line.Partition, Account: line.Account, QOS: line.QOS,
		MaxWalltimeMinutes: line.MaxWalltimeMinutes}
	if mode == StubPolicy {
		return r, nil
	}
	if confirm == nil {
		return queue.Resolution{}, fmt.Errorf("%w: mode %s has no scheduler to ask", queue.ErrUnavailable, mode)
	}
	if err := confirm(*r.Mapping); err != nil {
		return queue.Resolution{}, classified(err)
	}
	return r, nil
}

// find returns the line of a map for a requested queue.
func find(m *schema.QueueMap, requested string) (line schema.QueueMapping, usedFallback bool, err error) {
	if m == nil {
		return line, false, fmt.Errorf("%w: no QueueMap applies to the project; declare one in platform/queues, or use mode %s",
			queue.ErrConfiguration, Passthrough)
	}
	named := func(name string) int {
		return slices.IndexFunc(m.Spec.Queues, func(q schema.QueueMapping) bool { return q.Queue == name })
	}
	var names []string
	for _, q := range m.Spec.Queues {
		if q.Partition == "" {
			return line, false, fmt.Errorf("%w: queue %q of QueueMap %s has no partition", queue.ErrConfiguration, q.Queue, m.Key.Name)
		}
		names = append(names, q.Queue)
	}
	if i := named(requested); i >= 0 {
		return m.Spec.Queues[i], false, nil
	}
	switch i := named(m.Spec.FallbackQueue); {
	case i >= 0:
		return m.Spec.Queues[i], true, nil
	case m.Spec.FallbackQueue != "":
		return line, false, fmt.Errorf("%w: fallback_queue %q of QueueMap %s is not one of its queues", queue.ErrConfiguration,
			m.Spec.FallbackQueue, m.Key.Name)
	case requested == "":
		return line, false, fmt.Errorf("%w: QueueMap %s has no default; ask for one of %s", queue.ErrDenied, m.Key.Name,
			strings.Join(names, ", "))
	}
	return line, false, fmt.Errorf("%w: QueueMap %s has no queue %q; ask for one of %s", queue.ErrDenied, m.Key.Name, requested,
		strings.Join(names, ", "))
}

// classified gives an error without a class that of an operational failure.
func classified(err error) error {
	for _, class := range []error{queue.ErrConfiguration, queue.ErrDenied, queue.ErrUnavailable} {
		if errors.Is(err, class) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
}

// Minutes returns the time limit of a job: the requested one, or that of its queue if none is requested;
// 0: the partition's. A longer one is denied.
func Minutes(r queue.Resolution, requested int) (int, error) {
	switch limit := maxMinutes(r); {
	case requested < 0:
		return 0, fmt.Errorf("%w: a time limit of %d minutes is not possible", queue.ErrDenied, requested)
	case limit > 0 && requested > limit:
		return 0, fmt.Errorf("%w: queue %s allows %d minutes and the job asks for %d", queue.ErrDenied, r.ResolvedQueue, limit, requested)
	case requested == 0:
		return limit, nil
	}
	return requested, nil
}

func maxMinutes(r queue.Resolution) int {
	if r.Mapping == nil {
		return 0
	}
	return r.Mapping.MaxWalltimeMinutes
}

// ModeOf returns the mode of a map; Passthrough without one.
func ModeOf(m *schema.QueueMap) Mode {
	if m == nil {
		return Passthrough
	}
	return Mode(m.EffectiveMode())
}
