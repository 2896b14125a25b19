package launch

import (
	"encoding/json"
	"time"
)

// note is a message between an agent and the coordinator, one JSON object per line. One field is set. A note without fields is
// a heartbeat.
type note struct {
	// From a node to the coordinator.
	Hello       *hello        `json:"hello,omitempty"`
	Started     *started      `json:"started,omitempty"`
	Report      *report       `json:"report,omitempty"`
	Ended       *ended        `json:"ended,omitempty"`
	StartFailed *startFailure `json:"unstart,omitempty"`
	Progress    *progress     `json:"progress,omitempty"`
	Show        *shown        `json:"show,omitempty"`
	Without     *without      `json:"without,omitempty"`
	Late        *late         `json:"late,omitempty"`
	State       *stateOf      `json:"state,omitempty"`
	Silent      int           `json:"silent,omitempty"` // the generation of which no worker that runs here sends heartbeats
	Work        int           `json:"work,omitempty"`   // the generation of which a worker that runs here got further
	// From the coordinator to a node.
	Welcome bool    `json:"welcome,omitempty"`
	Refuse  string  `json:"refuse,omitempty"`
	Start   *start  `json:"start,omitempty"`
	Notice  string  `json:"news,omitempty"` // for the user
	End     *jobEnd `json:"end,omitempty"`
	Lost    []int   `json:"lost,omitempty"` // kill these ranks: the others go on without them
	Ask     []int   `json:"ask,omitempty"`  // ask these ranks for their State
	// Both ways: pass the signal on to all workers; kill them.
	Signal int  `json:"signal,omitempty"`
	Kill   bool `json:"kill,omitempty"`
}

// hello is the first note of a node.
type hello struct {
	Node  int    `json:"node"`
	Ranks int    `json:"ranks"`
	Min   int    `json:"min"`
	Max   int    `json:"max"`
	Host  string `json:"host"`
	PID   int    `json:"pid"`
}

// start tells a node to start its workers: ranks First and up of Size.
type start struct {
	Gen    int    `json:"gen"`
	First  int    `json:"first"`
	Size   int    `json:"size"`
	Master string `json:"master"` // host:port of rank 0
	Job    string `json:"job"`
	Watch  bool   `json:"watch,omitempty"` // there is a Watcher: workers send reports
	Stall  bool   `json:"stall,omitempty"` // nodes say whether their workers get further
}

// started says that a node has started all its workers.
type started struct {
	Gen  int   `json:"gen"`
	PIDs []int `json:"pids"`
}

// startFailure says that a node could not start all workers: the last Missing ones do not exist.
type startFailure struct {
	Gen     int    `json:"gen"`
	Missing int    `json:"missing"`
	Text    string `json:"text"`
}

// report is what a worker reported.
type report struct {
	Gen  int     `json:"gen"`
	Rank int     `json:"rank"`
	What message `json:"what"`
}

// shown is what a worker gave to Show.
type shown struct {
	Gen  int             `json:"gen"`
	Rank int             `json:"rank"`
	What json.RawMessage `json:"what"`
}

// ended says how a worker ended.
type ended struct {
	Gen    int  `json:"gen"`
	Rank   int  `json:"rank"`
	Status int  `json:"status"` // exit status, -1 after a signal
	Signal int  `json:"signal,omitempty"`
	Killed bool `json:"killed,omitempty"` // by its agent, because it did not exit
	// Silence is the time from the worker's last heartbeat until it was killed; 0 if it never sent one.
	Silence time.Duration `json:"silence,omitempty"`
	Mute    bool          `json:"mute,omitempty"` // it never sent a heartbeat
}

// progress says which step rank 0 has completed.
type progress struct {
	Gen  int `json:"gen"`
	Step int `json:"step"`
}

// without says that a rank goes on without others.
type without struct {
	Gen   int   `json:"gen"`
	Rank  int   `json:"rank"`
	Ranks []int `json:"ranks"`
}

// late says that a rank waited in vain for others.
type late struct {
	Gen   int   `json:"gen"`
	Ranks []int `json:"ranks"`
}

// stateOf is the State of a rank that was asked for it. Last is only its last operation, and All is not sent.
type stateOf struct {
	Gen  int   `json:"gen"`
	Rank int   `json:"rank"`
	What State `json:"what"`
}

// jobEnd is the result of the job, the same on all nodes.
type jobEnd struct {
	Code   int    `json:"code"`
	Text   string `json:"text"`
	Signal int    `json:"signal,omitempty"` // the one that ended the job
}
