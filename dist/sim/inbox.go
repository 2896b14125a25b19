package sim

import "slices"

// sender is from whom a message comes.
type sender struct {
	rank int
	tag  uint64
}

// message is what a rank has sent and nobody has asked for.
type message struct {
	at    Time // when it is there
	bytes int
}

// inbox is messages by sender. Most ranks hear from few others at a time, a root from all.
type inbox struct {
	lists []list
	place map[sender]int // in lists, once there are many
	spare []message
}

// list is the messages of a sender that has some.
type list struct {
	from     sender
	messages []message
	taken    int
}

const manySenders = 16

func (b *inbox) find(from sender) int {
	if b.place != nil {
		if i, ok := b.place[from]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(b.lists, func(l list) bool { return l.from == from })
}

func (b *inbox) put(from sender, m message) {
	i := b.find(from)
	if i < 0 {
		i = len(b.lists)
		b.lists = append(b.lists, list{from: from, messages: b.spare})
		b.spare = nil
		if i == manySenders && b.place == nil {
			b.place = map[sender]int{}
			for k, l := range b.lists {
				b.place[l.from] = k
			}
		} else if b.place != nil {
			b.place[from] = i
		}
	}
	l := &b.lists[i]
	if len(l.messages) == cap(l.messages) && 2*l.taken >= len(l.messages) { // a sender may always be ahead
		l.messages, l.taken = append(l.messages[:0], l.messages[l.taken:]...), 0
	}
	l.messages = append(l.messages, m)
}

// take returns the oldest message of a sender.
func (b *inbox) take(from sender) (m message, ok bool) {
	i := b.find(from)
	if i < 0 {
		return message{}, false
	}
	l := &b.lists[i]
	m = l.messages[l.taken]
	if l.taken++; l.taken == len(l.messages) {
		b.spare = l.messages[:0]
		last := len(b.lists) - 1
		*l, b.lists[last] = b.lists[last], list{}
		b.lists = b.lists[:last]
		if b.place != nil {
			delete(b.place, from)
			if i < last {
				b.place[l.from] = i
			}
		}
	}
	return m, true
}
