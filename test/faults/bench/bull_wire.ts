/** What a hand-over of a lossy job looks like on its way to Redis, and on its way back. Pure. */

/** Behind the keys of Bull's script: the job's id, its name, its data. The answer is the id alone. */
const ADD = /\$24\r\n([0-9a-f]{24})\r\n\$11\r\n__default__\r\n/;

/** The id of the first job that is handed over in what a client sent. */
export const addedJob = (sent: Buffer): string | undefined => ADD.exec(sent.toString('latin1'))?.[1];
