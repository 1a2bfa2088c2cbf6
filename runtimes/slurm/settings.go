package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// settings are an instance's config, as config.cue defines it.
type settings struct {
	Partitions []partition `json:"partitions"`
	Scheduler  struct {
		IntervalSeconds int `json:"interval_seconds"`
	} `json:"scheduler"`
	Identity    string `json:"identity"`
	Confinement string `json:"confinement,omitempty"`
	Backup      struct {
		Hour int `json:"hour"` // of UTC
		Keep int `json:"keep"` // 0: no backups
	} `json:"backup"`
}

// partition has all workers.
type partition struct {
	Name           string `json:"name"`
	MaxTimeMinutes int    `json:"max_time_minutes,omitempty"` // 0: no limit
	Default        bool   `json:"default,omitempty"`
}

func partitionNames(list []partition) []string {
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names
}

// The values of Identity: who makes the users' accounts on the hosts.
const (
	identityManaged  = "managed"  // Berth
	identityExternal = "external" // a directory service; Berth only checks
)

// The values of Confinement: whether jobs are confined to the CPUs, memory and GPUs that
// they asked for.
const (
	confinementCgroup = "cgroup"
	confinementNone   = "none" // accepted by the version's manifest
)

var (
	unixName      = regexp.MustCompile(`^[a-z_][-a-z0-9_]{0,31}$`)
	partitionName = regexp.MustCompile(`^[a-z][-a-z0-9_]{0,31}$`)
	deviceRange   = regexp.MustCompile(`^(/dev/(?:[A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+)(\[[0-9]{1,3}-[0-9]{1,3}\])?$`)
)

// parseSettings reads a config. The estate's loader has checked it and filled in
// defaults. It is checked again because daemons of root read it, and because records
// on hosts may come from another version of Berth.
func parseSettings(raw json.RawMessage) (settings, error) {
	s := settings{Identity: identityManaged, Confinement: confinementCgroup}
	s.Scheduler.IntervalSeconds = 30
	s.Backup.Hour, s.Backup.Keep = 2, 7
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&s); err != nil {
			return s, fmt.Errorf("config: %w", err)
		}
	}
	if len(s.Partitions) == 0 {
		s.Partitions = []partition{{Name: "main", Default: true}}
	}
	var names []string
	defaults := 0
	for _, p := range s.Partitions {
		if !partitionName.MatchString(p.Name) || slices.Contains([]string{"default", "all"}, p.Name) {
			return s, fmt.Errorf("config: partition %q: invalid name", p.Name)
		}
		if slices.Contains(names, p.Name) {
			return s, fmt.Errorf("config: partition %q is listed twice", p.Name)
		}
		if p.MaxTimeMinutes < 0 {
			return s, fmt.Errorf("config: partition %q: max_time_minutes is negative", p.Name)
		}
		names = append(names, p.Name)
		if p.Default {
			defaults++
		}
	}
	switch defaults {
	case 0:
		s.Partitions = slices.Clone(s.Partitions)
		s.Partitions[0].Default = true
	case 1:
	default:
		return s, fmt.Errorf("config: %d partitions are the default, want 1", defaults)
	}
	if s.Identity != identityManaged && s.Identity != identityExternal {
		return s, fmt.Errorf("config: identity %q is neither %s nor %s", s.Identity, identityManaged, identityExternal)
	}
	if s.Confinement != confinementCgroup && s.Confinement != confinementNone {
		return s, fmt.Errorf("config: confinement %q is neither %s nor %s", s.Confinement, confinementCgroup, confinementNone)
	}
	if s.Scheduler.IntervalSeconds < 1 {
		return s, fmt.Errorf("config: scheduler.interval_seconds is %d", s.Scheduler.IntervalSeconds)
	}
	return s, nil
}

// account is the Slurm account of all users of an instance.
const account = "members"
